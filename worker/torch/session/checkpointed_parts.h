#ifndef DDPRUN_WORKER_TORCH_SESSION_CHECKPOINTED_PARTS_H_
#define DDPRUN_WORKER_TORCH_SESSION_CHECKPOINTED_PARTS_H_

#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/power_sgd.h"
#include "worker/torch/session/sample_feed.h"
#include "worker/torch/session/training_course.h"

namespace ddprun::worker {

// The number of samples of a step, as a part of checkpoints, so that it stays the same on another
// number of workers: "samples", of a step, and "per_rank"; and, if set, "finished" and "evaluated"
// of LoopMarks. I64 [1] each. Threads: one.
class BatchCheckpoint : public CheckpointedState {
 public:
  // `on_change`: called after a step's number of samples has changed. Requires: feed and marks
  // outlive it.
  BatchCheckpoint(SampleFeed& feed, LoopMarks& marks, std::function<absl::Status()> on_change)
      : feed_(feed), marks_(marks), on_change_(std::move(on_change)) {}

  Tensors SaveState() const override;
  // If the options have changed since the save, they win over the saved batch.
  // Errors: FAILED_PRECONDITION — the state isn't SaveState's. Those of `on_change`.
  absl::Status RestoreState(const Tensors& state) override;

 private:
  SampleFeed& feed_;
  LoopMarks& marks_;
  const std::function<absl::Status()> on_change_;
};

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

// The part of a PowerSgd's state that is the same on all ranks, which a new worker gets from the
// others: the step, which decides whether gradients are compressed, and the matrices Q, by which
// all ranks compress. A rank's errors of compression aren't in it: a new worker begins without any.
// Threads: as PowerSgd's.
class PowerSgdOfAll : public CheckpointedState {
 public:
  // `hook` outlives this.
  explicit PowerSgdOfAll(PowerSgd& hook) : hook_(hook) {}

  Tensors SaveState() const override;
  absl::Status RestoreState(const Tensors& state) override { return hook_.RestoreState(state); }

 private:
  PowerSgd& hook_;
};

// Copies all that a step may change of a PowerSgd: Q is changed in place, errors are replaced.
CheckpointedState::Tensors KeepPowerSgd(const PowerSgd& hook);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_CHECKPOINTED_PARTS_H_
