#include "worker/torch/session/buckets_checkpoint.h"

namespace ddprun::worker {

absl::Status BucketsCheckpoint::Apply() {
  if (kept_.empty() || ddp_ == nullptr) return absl::OkStatus();
  return ddp_->buckets().RestoreState(kept_);
}

absl::Status BucketsCheckpoint::RestoreState(const Tensors& state) {
  kept_ = state;
  return Apply();
}

}  // namespace ddprun::worker
