#ifndef DDPRUN_WORKER_TORCH_SESSION_BUCKETS_CHECKPOINT_H_
#define DDPRUN_WORKER_TORCH_SESSION_BUCKETS_CHECKPOINT_H_

#include <memory>

#include "absl/status/status.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/distributed_data_parallel.h"

namespace ddprun::worker {

// DistributedDataParallel::buckets() as of the last step that was done, which outlives the
// DistributedDataParallel of a generation: what a step that broke has changed doesn't count, as
// ranks may have come to different places in it. Threads: one.
class BucketsCheckpoint : public CheckpointedState {
 public:
  // `ddp` outlives it; null = there is none now.
  explicit BucketsCheckpoint(const std::unique_ptr<DistributedDataParallel>& ddp) : ddp_(ddp) {}

  // A step was done. Requires: there is one.
  void Keep() { kept_ = ddp_->buckets().SaveState(); }
  // A new one begins where the one before was. Errors: as LibTorch's, INTERNAL.
  absl::Status Apply();
  void Forget() { kept_.clear(); }

  Tensors SaveState() const override { return kept_; }
  absl::Status RestoreState(const Tensors& state) override;

 private:
  const std::unique_ptr<DistributedDataParallel>& ddp_;
  Tensors kept_;  // empty: no step was done yet
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_BUCKETS_CHECKPOINT_H_
