// ZeRO's numbers: memory, and norms over all ranks.
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/full.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>
#include <torch/utils.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status_macros.h"
#include "worker/torch/collectives/collectives.h"
#include "worker/torch/optim/not_finite.h"
#include "worker/torch/optim/optimizer_state.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"
#include "worker/torch/zero/zero_setup.h"

namespace ddprun {
namespace {

constexpr double kMebibyte = 1024.0 * 1024.0;

std::string InMebibytes(int64_t bytes) {
  return absl::StrFormat("%.1f MiB", static_cast<double>(bytes) / kMebibyte);
}

std::string PartInMebibytes(int64_t bytes, int64_t all) {
  return absl::StrFormat("%.1f of %s", static_cast<double>(bytes) / kMebibyte, InMebibytes(all));
}

int64_t BytesOf(const torch::Tensor& tensor) {
  return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
}

// The bytes of the state's tensors, without counts of steps.
int64_t StateBytes(const torch::optim::Optimizer& optimizer) {
  const absl::StatusOr<worker::OptimizerTensors> state = worker::GetOptimizerState(optimizer);
  if (!state.ok()) return 0;
  int64_t bytes = 0;
  for (const auto& [name, tensor] : *state) {
    if (tensor.dim() > 0) bytes += BytesOf(tensor);
  }
  return bytes;
}

// The first of the own parameters, in the module's order, with a gradient that isn't finite.
int64_t FirstBadParameter(const worker::ZeroStorage& storage) {
  int64_t first = std::numeric_limits<int64_t>::max();
  for (const worker::ZeroPieceTensor& piece : storage.pieces()) {
    const torch::Tensor& gradient = piece.tensor.grad();
    if (!gradient.defined() || at::isfinite(gradient).all().item<bool>()) continue;
    first = std::min(first, static_cast<int64_t>(piece.piece.parameter));
  }
  return first;
}

}  // namespace

std::string ZeroMemory::ToText() const {
  const bool whole = parameters + offloaded >= all_parameters;
  std::string text = absl::StrCat(
      "parameters ", whole ? InMebibytes(parameters) : PartInMebibytes(parameters, all_parameters),
      ", gradients ", PartInMebibytes(gradients, all_gradients), ", optimizer state ",
      PartInMebibytes(optimizer_state, all_optimizer_state));
  if (offloaded > 0) {
    absl::StrAppend(&text, " in CPU memory with ", InMebibytes(offloaded), " of parameters");
  }
  if (gathered > 0) absl::StrAppend(&text, ", gathered up to ", InMebibytes(gathered));
  if (buckets > 0) absl::StrAppend(&text, ", buckets up to ", InMebibytes(buckets));
  return text;
}

ZeroMemory ZeroOptimizer::Memory() const {
  const Implementation& self = *implementation_;
  ZeroMemory memory;
  int64_t elements = 0;
  for (const worker::ZeroParameter& parameter : self.storage->parameters()) {
    const torch::Tensor& gradient = parameter.tensor.grad();
    if (gradient.defined() && !worker::IsMarked(gradient)) memory.gradients += BytesOf(gradient);
    memory.all_gradients += BytesOf(parameter.tensor);
    memory.all_parameters += BytesOf(parameter.tensor);
    elements += parameter.tensor.numel();
  }
  for (const worker::ZeroBucket& bucket : self.storage->buckets()) {
    if (!self.gatherer.has_value()) {
      memory.parameters += BytesOf(bucket.parameters);
    } else if (!self.storage->offloads()) {
      memory.parameters += BytesOf(bucket.updated);
    }
    memory.gradients += BytesOf(bucket.gradient);
    if (self.storage->offloads()) memory.offloaded += BytesOf(bucket.updated);
  }
  if (self.gatherer.has_value()) memory.gathered = self.gatherer->most_bytes();
  int64_t own_elements = 0;
  for (const worker::ZeroPieceTensor& piece : self.storage->pieces()) {
    own_elements += piece.tensor.numel();
  }
  memory.optimizer_state = StateBytes(*self.inner);
  if (own_elements > 0) {
    memory.all_optimizer_state = memory.optimizer_state * elements / own_elements;
  }
  if (self.reducer.has_value()) memory.buckets = self.reducer->most_bytes();
  return memory;
}

namespace worker {

absl::StatusOr<double> NormOverRanks(const ZeroImplementation& zero,
                                     const std::vector<torch::Tensor>& gradients) {
  const auto number = torch::TensorOptions(zero.device);
  torch::Tensor squares = at::full({1}, 0, number.dtype(torch::kDouble));
  if (!gradients.empty()) {
    const torch::Tensor norms = at::stack(at::_foreach_norm(gradients)).to(torch::kDouble);
    squares.fill_(norms.square().sum());
  }
  DDPRUN_RETURN_IF_ERROR(AllReduceSum(*zero.group, squares));
  const double norm = std::sqrt(squares.item<double>());
  if (std::isfinite(norm)) return norm;
  torch::Tensor first = at::full({1}, FirstBadParameter(*zero.storage), number.dtype(torch::kLong));
  DDPRUN_RETURN_IF_ERROR(AllReduce(*zero.group, first, c10d::ReduceOp::MIN));
  const int64_t parameter = first.item<int64_t>();
  if (parameter == std::numeric_limits<int64_t>::max()) {
    return GradientsNotFinite(norm, /*name=*/"");
  }
  return GradientsNotFinite(norm, zero.storage->parameters()[static_cast<size_t>(parameter)].name);
}

}  // namespace worker
}  // namespace ddprun
