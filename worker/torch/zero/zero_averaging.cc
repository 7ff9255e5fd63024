// Checks that the gradients of ZeRO stage 1 are averaged, which it doesn't do itself.
#include <ATen/ops/cat.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/torch/collectives/collectives.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"

namespace ddprun {
namespace {

// The largest difference of averaged gradients, as a part of their sum of absolute values. Averages
// in another order differ by rounding (bf16: less than 1 % in each value), gradients of other
// samples by far more.
constexpr double kMostDifference = 0.02;

// Whether the parameter has a hook, as of a reducer (DistributedDataParallel's or another one).
bool IsHooked(const worker::ZeroParameter& parameter) {
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter.tensor);
  return node != nullptr && !node->post_hooks().empty();
}

// {sum, sum of absolute values}.
torch::Tensor SumsOf(const torch::Tensor& gradient, torch::Device device) {
  const auto type = torch::TensorOptions(device).dtype(torch::kDouble);
  if (!gradient.defined() || gradient.is_sparse()) return at::zeros({2}, type);
  const torch::Tensor plain = gradient.detach();
  return at::stack({plain.sum(torch::kDouble), plain.abs().sum(torch::kDouble)});
}

}  // namespace

// Without DistributedDataParallel each rank would update its share of the parameters by its own
// samples: the loss falls, and nobody notices that most samples never reach most parameters. The
// absence of hooks is no proof, because a program may average the gradients itself before each
// step. The proof is that there are no hooks and the ranks' gradients differ. So without a hook the
// gradients are compared, once.
absl::Status ZeroImplementation::CheckAveraging() const {
  if (place->plan.world_size == 1) return absl::OkStatus();
  const std::vector<worker::ZeroParameter>& parameters = storage->parameters();
  const bool is_hooked = std::any_of(parameters.begin(), parameters.end(), IsHooked);
  torch::Tensor unhooked = at::zeros({1}, torch::TensorOptions(device).dtype(torch::kDouble));
  if (!is_hooked) unhooked.fill_(1);
  DDPRUN_RETURN_IF_ERROR(worker::AllReduce(*group, unhooked, c10d::ReduceOp::MAX));
  if (unhooked.item<double>() == 0) return absl::OkStatus();
  std::vector<torch::Tensor> sums;
  for (const worker::ZeroParameter& one : parameters) {
    sums.push_back(SumsOf(one.tensor.grad(), device));
  }
  const torch::Tensor own = at::cat(sums);
  torch::Tensor extremes = at::stack({own, -own});
  DDPRUN_RETURN_IF_ERROR(worker::AllReduce(*group, extremes, c10d::ReduceOp::MAX));
  extremes = extremes.cpu();
  const auto* most = extremes.const_data_ptr<double>();
  const auto* least = most + own.numel();  // negated
  for (size_t i = 0; i < parameters.size(); ++i) {
    const double bound = kMostDifference * most[2 * i + 1];
    const bool differs =
        most[2 * i] + least[2 * i] > bound || most[2 * i + 1] + least[2 * i + 1] > bound;
    if (!differs) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "nobody averages the gradients: that of '", parameters[i].name,
        "' differs between the ranks, and ZeroOptimizer stage 1 leaves the average to "
        "DistributedDataParallel, which the module isn't wrapped in. Make one "
        "(DistributedDataParallel::Create) and run the forward pass through its Forward(), or take "
        "stage 2, which averages by itself"));
  }
  return absl::OkStatus();
}

}  // namespace ddprun
