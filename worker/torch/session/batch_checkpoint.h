#ifndef DDPRUN_WORKER_TORCH_SESSION_BATCH_CHECKPOINT_H_
#define DDPRUN_WORKER_TORCH_SESSION_BATCH_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "ddprun/checkpointed_state.h"

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

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_BATCH_CHECKPOINT_H_
