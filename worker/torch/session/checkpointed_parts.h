#ifndef DDPRUN_WORKER_TORCH_SESSION_CHECKPOINTED_PARTS_H_
#define DDPRUN_WORKER_TORCH_SESSION_CHECKPOINTED_PARTS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/elastic_sampler.h"
#include "ddprun/power_sgd.h"

namespace ddprun::worker {

// What the program has done in its loop beside training.
struct LoopMarks {
  bool is_finished = false;     // Session::StopTraining was called
  int64_t evaluated_step = -1;  // the step of the last evaluation; -1 = doesn't matter
};

// The number of samples of a step, as a part of checkpoints, so that it stays the same on another
// number of workers: "samples", of a step, and "per_rank"; and, if set, "finished" and "evaluated"
// of LoopMarks. I64 [1] each. Threads: one.
class BatchCheckpoint : public CheckpointedState {
 public:
  // `per_rank`: the samples of one rank by the options. `get`, `take`: the samples of a step.
  // Requires: `marks` outlive it.
  BatchCheckpoint(int64_t per_rank, LoopMarks& marks, std::function<int64_t()> get,
                  std::function<absl::Status(int64_t)> take)
      : per_rank_(per_rank), marks_(marks), get_(std::move(get)), take_(std::move(take)) {}

  Tensors SaveState() const override;
  // If the options have changed since the save, they win over the saved batch.
  // Errors: FAILED_PRECONDITION — the state isn't SaveState's. Those of `take`.
  absl::Status RestoreState(const Tensors& state) override;

 private:
  const int64_t per_rank_;
  LoopMarks& marks_;
  const std::function<int64_t()> get_;
  const std::function<absl::Status(int64_t)> take_;
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

// The training's place in its data, as a part of checkpoints: "sampler", U8, the text of
// SamplerState::Serialize, which Python's sampler reads, too. Threads: one.
class SamplerCheckpoint : public CheckpointedState {
 public:
  SamplerCheckpoint(std::function<SamplerState()> get,
                    std::function<absl::Status(const SamplerState&)> restore)
      : get_(std::move(get)), restore_(std::move(restore)) {}

  Tensors SaveState() const override;
  // Errors: as ElasticSampler::Restore's.
  absl::Status RestoreState(const Tensors& state) override;

 private:
  const std::function<SamplerState()> get_;
  const std::function<absl::Status(const SamplerState&)> restore_;
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
