#ifndef DDPRUN_WORKER_TORCH_SESSION_BATCH_CHECKPOINT_H_
#define DDPRUN_WORKER_TORCH_SESSION_BATCH_CHECKPOINT_H_

#include <cstdint>
#include <functional>
#include <utility>

#include "ddprun/checkpointed_state.h"

namespace ddprun::worker {

// What a program's own doings have changed of its loop.
struct LoopMarks {
  bool is_finished = false;     // Session::StopTraining was called
  int64_t evaluated_step = -1;  // of the last evaluation; -1 = it doesn't matter
};

// What a step learns from, as a part of checkpoints, so that it stays when another number of
// workers goes on: "samples", of a step, and "per_rank"; and where they say something, "finished"
// and "evaluated", of LoopMarks. I64 [1] each. Threads: one.
class BatchCheckpoint : public CheckpointedState {
 public:
  // `per_rank`: what options say of one rank. `get` and `take`: the samples of a step.
  // Requires: `marks` outlive it.
  BatchCheckpoint(int64_t per_rank, LoopMarks& marks, std::function<int64_t()> get,
                  std::function<absl::Status(int64_t)> take)
      : per_rank_(per_rank), marks_(marks), get_(std::move(get)), take_(std::move(take)) {}

  Tensors SaveState() const override;
  // Leaves a batch that options have changed since as they say now.
  // Errors: FAILED_PRECONDITION — not what SaveState gives. As `take`'s.
  absl::Status RestoreState(const Tensors& state) override;

 private:
  const int64_t per_rank_;
  LoopMarks& marks_;
  const std::function<int64_t()> get_;
  const std::function<absl::Status(int64_t)> take_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_BATCH_CHECKPOINT_H_
