#include "worker/torch/zero/zero_setup.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ddprun/parameters.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/optim/not_finite.h"
#include "worker/torch/store/gathering_store.h"
#include "worker/torch/store/meeting.h"

namespace ddprun::worker {
namespace {

using torch::optim::OptimizerParamGroup;

constexpr double kBytesPerMebibyte = 1024.0 * 1024.0;
constexpr int64_t kFirstBucketBytes = int64_t{1} << 20;

absl::Status CheckZeroOptions(const ZeroOptions& options) {
  if (options.stage < 1 || options.stage > 3) {
    return absl::InvalidArgumentError(
        absl::StrCat("ZeroOptions::stage is ", options.stage,
                     "; give 1 (state), 2 (state and gradients) or 3 (parameters too)"));
  }
  if (options.stage == 3 && options.find_unused_parameters) {
    return absl::InvalidArgumentError(
        "ZeroOptions::find_unused_parameters doesn't go with stage 3, where all ranks must use the "
        "same parameters in the same order; take stage 2, or set requires_grad of those that are "
        "never used to false");
  }
  if (!(options.bucket_cap_mb > 0)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "ZeroOptions::bucket_cap_mb is ", options.bucket_cap_mb, "; give a size in MiB above 0"));
  }
  return absl::OkStatus();
}

absl::Status CheckParameter(const std::string& name, const torch::Tensor& tensor,
                            torch::Device device) {
  const torch::Device there = tensor.device();
  if (there.type() != device.type() || (device.is_cuda() && there != device)) {
    return absl::InvalidArgumentError(absl::StrCat("parameter '", name, "' is on ", there.str(),
                                                   ", this worker's device is ", device.str(),
                                                   "; call module->to(context.device()) first"));
  }
  if (tensor.layout() == torch::kStrided && tensor.is_floating_point()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "parameter '", name, "' is sparse or not of a floating-point type; ZeRO can't share it out"));
}

// The trained parameters of all groups; makes the group of all parameters when there is none.
absl::StatusOr<std::vector<ZeroParameter>> CollectZeroParameters(ZeroImplementation& zero) {
  DDPRUN_RETURN_IF_ERROR(CheckZeroOptions(zero.options));
  if (zero.options.groups.empty()) zero.options.groups.emplace_back(Parameters(*zero.module));
  std::map<const void*, std::string> names;
  for (const NamedTensor& parameter : NamedParameters(*zero.module)) {
    names[parameter.tensor.unsafeGetTensorImpl()] = parameter.name;
  }
  std::map<const void*, size_t> seen;
  std::vector<ZeroParameter> parameters;
  for (size_t group = 0; group < zero.options.groups.size(); ++group) {
    for (const torch::Tensor& tensor : DistinctTensors(zero.options.groups[group].params())) {
      const size_t number = zero.shapes.size();
      zero.shapes.push_back(tensor.sizes().vec());
      const auto name = names.find(tensor.unsafeGetTensorImpl());
      if (name == names.end()) {
        return absl::InvalidArgumentError(absl::StrCat(
            "parameter ", number, " of the groups is none of the module's parameters"));
      }
      if (!seen.emplace(tensor.unsafeGetTensorImpl(), number).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("parameter '", name->second, "' is in two groups; give each one only"));
      }
      if (!tensor.requires_grad() || tensor.numel() == 0) continue;
      DDPRUN_RETURN_IF_ERROR(CheckParameter(name->second, tensor, zero.device));
      parameters.push_back(
          {.tensor = tensor, .name = name->second, .group = group, .number = number});
    }
  }
  if (parameters.empty()) {
    return absl::InvalidArgumentError("no parameter needs a gradient; there is nothing to train");
  }
  // In the module's order, which is about that of the forward pass.
  std::map<std::string, size_t> order;
  for (const NamedTensor& parameter : NamedParameters(*zero.module)) {
    order.emplace(parameter.name, order.size());
  }
  std::sort(parameters.begin(), parameters.end(),
            [&](const auto& a, const auto& b) { return order.at(a.name) < order.at(b.name); });
  return parameters;
}

// Describes what must be the same on all ranks.
std::vector<std::string> DescribeZero(const ZeroOptions& options,
                                      const std::vector<ZeroParameter>& parameters,
                                      const torch::nn::Module& module) {
  std::vector<std::string> texts = {absl::StrCat(
      "ZeRO stage ", options.stage, ", bucket_cap_mb ", options.bucket_cap_mb,
      ", find_unused_parameters ", options.find_unused_parameters, ", broadcast_buffers ",
      options.broadcast_buffers, ", init_sync ", options.init_sync)};
  for (const ZeroParameter& parameter : parameters) {
    texts.push_back(
        absl::StrCat("parameter ", parameter.name, " ", c10::str(parameter.tensor.scalar_type()),
                     " ", c10::str(parameter.tensor.sizes()), " of group ", parameter.group));
  }
  for (const NamedTensor& buffer : NamedBuffers(module)) {
    texts.push_back(absl::StrCat("buffer ", buffer.name, " ", c10::str(buffer.tensor.scalar_type()),
                                 " ", c10::str(buffer.tensor.sizes())));
  }
  return texts;
}

// Returns the first error of all ranks, on all of them.
absl::Status CompareZero(const ZeroImplementation& zero, Context& context,
                         const absl::StatusOr<std::vector<ZeroParameter>>& parameters) {
  if (context.world_size() == 1) return parameters.status();
  Context::Implementation& place = context.implementation();
  StorePart store(absl::StrCat("models/", place.models_created++), place.store);
  if (!parameters.ok()) {
    NotifyModelProblem(store, context.rank(), std::string(parameters.status().message()));
    return parameters.status();
  }
  return CompareModels(store,
                       {.rank = context.rank(),
                        .world_size = context.world_size(),
                        .timeout = place.plan.start_timeout},
                       DescribeZero(zero.options, *parameters, *zero.module));
}

std::vector<ZeroParameterSize> SizesOf(const std::vector<ZeroParameter>& parameters) {
  std::vector<ZeroParameterSize> sizes;
  sizes.reserve(parameters.size());
  for (const ZeroParameter& parameter : parameters) {
    sizes.push_back({.elements = parameter.tensor.numel(),
                     .element_bytes = parameter.tensor.element_size(),
                     .type = static_cast<int>(parameter.tensor.scalar_type())});
  }
  return sizes;
}

// Numbers the blocks of a module. A block is the largest part of the module that fits into a
// bucket; the own parameters of a larger part, without those of its children, are a block as well.
class BlockNumbers {
 public:
  BlockNumbers(const std::vector<ZeroParameter>& parameters, int64_t bucket_bytes)
      : bucket_bytes_(bucket_bytes), blocks_(parameters.size(), 0) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      rest_[parameters[i].tensor.unsafeGetTensorImpl()] = i;
    }
  }

  void Visit(const torch::nn::Module& module) {
    int64_t bytes = 0;
    for (const torch::Tensor& parameter : Parameters(module)) {
      if (rest_.contains(parameter.unsafeGetTensorImpl())) {
        bytes += static_cast<int64_t>(parameter.nbytes());
      }
    }
    if (bytes <= bucket_bytes_) return MakeBlock(Parameters(module));
    MakeBlock(module.parameters(/*recurse=*/false));
    for (const auto& child : module.children()) Visit(*child);
  }

  const std::vector<size_t>& blocks() const { return blocks_; }

 private:
  void MakeBlock(const std::vector<torch::Tensor>& parameters) {
    for (const torch::Tensor& parameter : parameters) {
      const auto found = rest_.extract(parameter.unsafeGetTensorImpl());
      if (!found.empty()) blocks_[found.mapped()] = count_;
    }
    ++count_;
  }

  const int64_t bucket_bytes_;
  std::map<const void*, size_t> rest_;  // by tensor: those that are in no block yet
  std::vector<size_t> blocks_;
  size_t count_ = 0;
};

std::vector<ZeroBucketLayout> LayOut(const ZeroImplementation& zero,
                                     const std::vector<ZeroParameter>& parameters,
                                     uint32_t world_size) {
  const auto bucket_bytes = static_cast<int64_t>(zero.options.bucket_cap_mb * kBytesPerMebibyte);
  if (zero.options.stage < 3) {
    return LayOutZeroBuckets(SizesOf(parameters),
                             {.bucket_bytes = bucket_bytes,
                              .first_bucket_bytes = std::min(bucket_bytes, kFirstBucketBytes)},
                             world_size);
  }
  BlockNumbers numbers(parameters, bucket_bytes);
  numbers.Visit(*zero.module);
  return LayOutZeroBlocks(SizesOf(parameters), numbers.blocks(), bucket_bytes, world_size);
}

void BroadcastModule(const ZeroImplementation& zero) {
  std::vector<torch::Tensor> tensors;
  for (const ZeroBucket& bucket : zero.storage->buckets()) tensors.push_back(bucket.parameters);
  for (const torch::Tensor& parameter : Parameters(*zero.module)) {
    if (!parameter.requires_grad()) tensors.push_back(parameter.detach());
  }
  for (const torch::Tensor& buffer : Buffers(*zero.module)) tensors.push_back(buffer.detach());
  c10d::broadcast_coalesced(zero.group, tensors, kZeroBroadcastBytes, /*rank=*/0);
}

// The groups again, with this rank's pieces in place of the parameters.
std::vector<OptimizerParamGroup> GroupsOfPieces(const ZeroImplementation& zero) {
  std::vector<std::vector<torch::Tensor>> pieces(zero.options.groups.size());
  for (const ZeroPieceTensor& piece : zero.storage->pieces()) {
    pieces[zero.storage->parameters()[piece.piece.parameter].group].push_back(piece.tensor);
  }
  std::vector<OptimizerParamGroup> groups;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const OptimizerParamGroup& wanted = zero.options.groups[i];
    if (wanted.has_options()) {
      groups.emplace_back(std::move(pieces[i]), wanted.options().clone());
    } else {
      groups.emplace_back(std::move(pieces[i]));
    }
  }
  return groups;
}

}  // namespace

absl::Status SetUpZero(ZeroImplementation& zero, Context& context) {
  const torch::NoGradGuard no_grad;
  zero.device = context.device();
  zero.place = &context.implementation();
  zero.group = context.implementation().group;
  zero.shapes.clear();
  ++zero.setups;
  zero.knows_averaging = false;  // a collective: new ranks make it, and so do those that live on
  absl::StatusOr<std::vector<ZeroParameter>> parameters = CollectZeroParameters(zero);
  DDPRUN_RETURN_IF_ERROR(CompareZero(zero, context, parameters));
  // The last moment at which a rank alone has all parameters.
  if (zero.options.stage == 3 && zero.storage == nullptr) {
    for (const ZeroParameter& parameter : *parameters) {
      if (FindNotFinite(parameter.tensor) == NotFinite::kNothing) continue;
      zero.not_finite.insert(parameter.name);
    }
  }
  std::vector<ZeroBucketLayout> layouts = LayOut(zero, *parameters, context.world_size());
  const ZeroPlacement placement = {.rank = context.rank(),
                                   .world_size = context.world_size(),
                                   .offloads = zero.options.offload_to_cpu,
                                   .apart = zero.options.stage == 3};
  zero.storage =
      std::make_unique<ZeroStorage>(*std::move(parameters), std::move(layouts), placement);
  if (zero.options.init_sync) {
    BroadcastModule(zero);
    zero.storage->RenewCopies();
  }
  zero.inner = zero.make(GroupsOfPieces(zero));
  if (zero.inner == nullptr || zero.inner->param_groups().size() != zero.options.groups.size()) {
    return absl::InvalidArgumentError(
        "MakeOptimizer must answer with an optimizer of the groups that it is given");
  }
  if (zero.options.stage == 3) zero.gatherer.emplace(*zero.group, *zero.storage);
  if (zero.options.stage >= 2) {
    zero.reducer.emplace(*zero.group, *zero.storage, zero.options.find_unused_parameters);
  }
  return absl::OkStatus();
}

}  // namespace ddprun::worker
