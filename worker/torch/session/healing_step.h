#ifndef DDPRUN_WORKER_TORCH_SESSION_HEALING_STEP_H_
#define DDPRUN_WORKER_TORCH_SESSION_HEALING_STEP_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ddprun/context.h"
#include "worker/torch/checkpoint/healing.h"
#include "worker/torch/checkpoint/peer_state.h"
#include "worker/torch/session/sample_feed.h"
#include "worker/torch/session/training_course.h"

namespace ddprun::worker {

// Whether ranks that have the state lose less time if they send it beside their next step, in which
// they compute the other ranks' samples as well, than if all wait for the transfer before the step.
// Params: bytes: of the state. step_time: of a step that all ranks compute. missing, learners: how
// many ranks lack the state, and how many have it; both above 0.
bool BesideTakesLess(int64_t bytes, absl::Duration step_time, uint32_t missing, uint32_t learners);

// A step beside which new workers get the state (worker/torch/checkpoint/healing.cc): only ranks
// that have the state learn from its samples. Threads: one.
class HealingStep {
 public:
  // A collective. Moves `course` to the newest state's place, and has `feed` deal the samples to
  // the ranks that learn. Requires: context and course outlive it, and Healing's. Errors:
  // Healing's.
  static absl::StatusOr<std::unique_ptr<HealingStep>> Begin(Context& context,
                                                            const ReplicatedState& state,
                                                            const KnownStates& known,
                                                            TrainingCourse& course,
                                                            SampleFeed& feed);

  // Sets the weights of the step's passes for the number of ranks that learn.
  void Weigh(SampleFeed::Step& step) const;
  // Waits until all ranks have the state; a collective. Before the optimizer's step, and before
  // anything else that reads the state.
  absl::Status Finish();
  // Whether this rank got the state, also if the healing failed.
  bool has_taken() const { return healing_->has_taken(); }
  // Gives the healing up because the step broke: `course` is at the state that this rank has.
  absl::Status Abandon();

 private:
  HealingStep(Context& context, TrainingCourse& course, std::unique_ptr<Healing> healing)
      : context_(context),
        course_(course),
        before_(course.progress()),
        healing_(std::move(healing)) {}
  // Notes whose state this rank has now.
  void NoteTaken();

  Context& context_;
  TrainingCourse& course_;
  const TrainingProgress before_;
  const std::unique_ptr<Healing> healing_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_HEALING_STEP_H_
