#ifndef DDPRUN_WORKER_TORCH_SESSION_SESSION_STEP_H_
#define DDPRUN_WORKER_TORCH_SESSION_SESSION_STEP_H_

#include <torch/types.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/instant.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/elastic_sampler.h"
#include "ddprun/metrics.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/checkpoint/peer_state.h"
#include "worker/torch/session/own_states.h"
#include "worker/torch/session/sample_feed.h"
#include "worker/torch/session/trained_model.h"
#include "worker/torch/session/training_course.h"

namespace ddprun::worker {

// Prints a line to standard output, at once.
inline void Print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

// Copies of what a step changes before its optimizer steps, made at the step's beginning, for a
// step that is done again. (Random generators are seeded anew for each step.)
//
// With several modules each has a backward pass and a step of its own in a batch, and parameters of
// the first change before the last one's gradients exist. If a peer is lost in between, all ranks
// do the step again. So what optimizers change is copied before the first of them steps. The same
// holds for an optimizer that makes several passes in one step (LBFGS). The usual step, in which
// one module's parameters change after the last collective, copies nothing of that. Threads: one.
class StepStart {
 public:
  // Requires: these outlive it.
  StepStart(const TrainedModel& trained, const OwnStates& own, TrainingCourse& course);

  // Call it before an optimizer steps early: also copies what only optimizers change. Does nothing
  // the second time. Params: state: of all ranks.
  absl::Status KeepBeforeUpdate(const ReplicatedState& state);
  // Puts all back, unless the step was done.
  absl::Status PutBack(const ReplicatedState& state) const;

 private:
  const TrainedModel& trained_;
  const OwnStates& own_;
  TrainingCourse& course_;
  const int64_t step_;                  // the last one that was done
  std::vector<torch::Tensor> buffers_;  // copies
  CheckpointedState::Tensors power_sgd_;
  const OwnStates::Kept kept_own_;
  const bool is_finished_;  // LoopMarks'
  const double scale_;      // the GradScaler's
  const int64_t growth_tracker_;
  std::optional<CheckpointTensors> before_update_;
};

// The step that is under way, or the last one that was done.
struct CurrentStep {
  Instant began;
  StepShare share;
  SampleFeed::Passes passes;  // the ones that remain, the next one last
  Pass pass;                  // the current one
  // The loss in it: of all passes so far [], on the model's device; undefined before the first one.
  StepMetrics metrics;
  std::unique_ptr<StepStart> start;  // null: not needed
  bool has_stepped = false;          // an optimizer stepped; false: all left the step out
  bool stepped_with_function = false;
  // The step is done, and still to be saved, with the program's states.
  bool is_open = false;
  // Not OK: a collective of this generation failed since the last Advance(). What the program does
  // until the next one doesn't count, unless the step was done before.
  absl::Status broken;

  // Adds the loss of the current pass. Not read here, because every pass would have to wait for a
  // GPU.
  void AddLoss(const torch::Tensor& of_pass) {
    if (pass.share == 0) return;
    const torch::Tensor value = of_pass.detach().to(torch::kDouble) * pass.share;
    metrics.loss = metrics.loss.defined() ? metrics.loss + value : value;
  }
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_SESSION_STEP_H_
