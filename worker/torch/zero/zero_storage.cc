#include "worker/torch/zero/zero_storage.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/utils.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "worker/torch/optim/storage_on_use.h"

namespace ddprun::worker {

ZeroStorage::ZeroStorage(std::vector<ZeroParameter> parameters,
                         std::vector<ZeroBucketLayout> layouts, const ZeroPlacement& placement)
    : parameters_(std::move(parameters)), placement_(placement) {
  const torch::NoGradGuard no_grad;
  const std::vector<ZeroPiece> pieces = ZeroPiecesOf(layouts, placement.rank);
  for (ZeroBucketLayout& layout : layouts) {
    buckets_.push_back({.layout = std::move(layout)});
    FillBucket(buckets_.back());
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

void ZeroStorage::FillBucket(ZeroBucket& bucket) {
  const int64_t share = bucket.layout.share;
  const torch::TensorOptions options =
      parameters_[bucket.layout.slots[0].parameter].tensor.options().requires_grad(false);
  bucket.parameters = at::zeros({share * placement_.world_size}, options);
  for (const ZeroSlot& slot : bucket.layout.slots) {
    torch::Tensor& parameter = parameters_[slot.parameter].tensor;
    const torch::Tensor view =
        bucket.parameters.narrow(0, slot.begin, slot.length).view(parameter.sizes());
    // A parameter that was shared out has no memory, and gets its values from the shares.
    if (parameter.storage().data() != nullptr) view.copy_(parameter);
    SetDataOfMarked(parameter, view);
  }
  bucket.share = bucket.parameters.narrow(0, share * placement_.rank, share);
  bucket.updated = bucket.share;
  if (placement_.offloads) {
    bucket.updated =
        at::empty({share}, options.device(torch::kCPU).pinned_memory(bucket.parameters.is_cuda()));
  } else if (placement_.apart) {
    bucket.updated = at::empty({share}, options);
  }
  RenewCopy(bucket);
}

torch::Tensor& ZeroStorage::GradientOf(ZeroBucket& bucket) {
  if (!bucket.gradient.defined()) {
    bucket.gradient = at::zeros(bucket.updated.sizes(),
                                bucket.updated.options().pinned_memory(bucket.updated.is_pinned()));
  }
  return bucket.gradient;
}

void ZeroStorage::PublishShares() {
  if (!placement_.offloads || placement_.apart) return;
  const torch::NoGradGuard no_grad;
  for (ZeroBucket& bucket : buckets_) bucket.share.copy_(bucket.updated);
}

void ZeroStorage::RenewCopies() {
  const torch::NoGradGuard no_grad;
  for (ZeroBucket& bucket : buckets_) RenewCopy(bucket);
}

void ZeroStorage::RenewCopy(ZeroBucket& bucket) {
  if (!bucket.updated.is_same(bucket.share)) bucket.updated.copy_(bucket.share);
}

}  // namespace ddprun::worker
