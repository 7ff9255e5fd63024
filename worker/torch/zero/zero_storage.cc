#include "worker/torch/zero/zero_storage.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include <algorithm>
#include <tuple>
#include <utility>

namespace ddprun::worker {
namespace {

std::vector<ZeroParameterSize> SizesOf(const std::vector<ZeroParameter>& parameters) {
  std::vector<ZeroParameterSize> sizes;
  for (const ZeroParameter& parameter : parameters) {
    sizes.push_back({.elements = parameter.tensor.numel(),
                     .element_bytes = parameter.tensor.element_size(),
                     .type = static_cast<int>(parameter.tensor.scalar_type())});
  }
  return sizes;
}

}  // namespace

ZeroStorage::ZeroStorage(std::vector<ZeroParameter> parameters, const ZeroLayoutLimits& limits,
                         uint32_t rank, uint32_t world_size, bool offload_to_cpu)
    : parameters_(std::move(parameters)), rank_(rank), offloads_(offload_to_cpu) {
  const torch::NoGradGuard no_grad;
  std::vector<ZeroBucketLayout> layouts =
      LayOutZeroBuckets(SizesOf(parameters_), limits, world_size);
  const std::vector<ZeroPiece> pieces = ZeroPiecesOf(layouts, rank);
  for (ZeroBucketLayout& layout : layouts) {
    buckets_.push_back({.layout = std::move(layout)});
    FillBucket(buckets_.back(), world_size);
  }
  for (const ZeroPiece& piece : pieces) {
    pieces_.push_back({piece, PartOf(piece, buckets_[piece.bucket].updated)});
  }
  std::sort(pieces_.begin(), pieces_.end(),
            [this](const ZeroPieceTensor& a, const ZeroPieceTensor& b) {
              const auto key = [this](const ZeroPieceTensor& one) {
                return std::tie(parameters_[one.piece.parameter].group,
                                parameters_[one.piece.parameter].number);
              };
              return key(a) < key(b);
            });
}

void ZeroStorage::FillBucket(ZeroBucket& bucket, uint32_t world_size) {
  const int64_t share = bucket.layout.share;
  const torch::TensorOptions options =
      parameters_[bucket.layout.slots[0].parameter].tensor.options().requires_grad(false);
  bucket.parameters = at::zeros({share * world_size}, options);
  for (const ZeroSlot& slot : bucket.layout.slots) {
    torch::Tensor& parameter = parameters_[slot.parameter].tensor;
    const torch::Tensor view =
        bucket.parameters.narrow(0, slot.begin, slot.length).view(parameter.sizes());
    view.copy_(parameter);
    parameter.set_data(view);
  }
  bucket.share = bucket.parameters.narrow(0, share * rank_, share);
  bucket.updated = bucket.share;
  if (!offloads_) return;
  bucket.updated =
      at::empty({share}, options.device(torch::kCPU).pinned_memory(bucket.parameters.is_cuda()));
  bucket.updated.copy_(bucket.share);
}

torch::Tensor& ZeroStorage::GradientOf(ZeroBucket& bucket) {
  if (!bucket.gradient.defined()) {
    bucket.gradient = at::zeros(bucket.updated.sizes(),
                                bucket.updated.options().pinned_memory(bucket.updated.is_pinned()));
  }
  return bucket.gradient;
}

void ZeroStorage::PublishShares() {
  if (!offloads_) return;
  const torch::NoGradGuard no_grad;
  for (ZeroBucket& bucket : buckets_) bucket.share.copy_(bucket.updated);
}

void ZeroStorage::RenewCopies() {
  if (!offloads_) return;
  const torch::NoGradGuard no_grad;
  for (ZeroBucket& bucket : buckets_) bucket.updated.copy_(bucket.share);
}

}  // namespace ddprun::worker
