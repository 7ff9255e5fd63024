#ifndef DDPRUN_WORKER_TORCH_SESSION_BUCKETS_CHECKPOINT_H_
#define DDPRUN_WORKER_TORCH_SESSION_BUCKETS_CHECKPOINT_H_

#include <memory>

#include "absl/status/status.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/distributed_data_parallel.h"

namespace ddprun::worker {

// The state of DistributedDataParallel::buckets() after the last step that was done. It outlives
// the DistributedDataParallel of a generation. Changes by a step that broke don't count, because
// ranks may have stopped at different places in it. Threads: one.
class BucketsCheckpoint : public CheckpointedState {
 public:
  // `ddp` outlives this; null = there is none now.
  explicit BucketsCheckpoint(const std::unique_ptr<DistributedDataParallel>& ddp) : ddp_(ddp) {}

  // Call it after a step that was done. Requires: `ddp` isn't null.
  void Keep() { kept_ = ddp_->buckets().SaveState(); }
  // Gives a new `ddp` the state of the one before. Errors: as LibTorch's, INTERNAL.
  absl::Status Apply();
  void Forget() { kept_.clear(); }

  Tensors SaveState() const override { return kept_; }
  absl::Status RestoreState(const Tensors& state) override;

 private:
  const std::unique_ptr<DistributedDataParallel>& ddp_;
  Tensors kept_;  // empty before the first step
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_BUCKETS_CHECKPOINT_H_
