#ifndef DDPRUN_WORKER_TORCH_SESSION_TRAINING_COURSE_H_
#define DDPRUN_WORKER_TORCH_SESSION_TRAINING_COURSE_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "ddprun/checkpointer.h"
#include "ddprun/elastic_sampler.h"
#include "ddprun/training_options.h"
#include "worker/torch/checkpoint/peer_state.h"

namespace ddprun::worker {

// What the program has done in its loop beside training.
struct LoopMarks {
  bool is_finished = false;     // Session::StopTraining was called
  int64_t evaluated_step = -1;  // the step of the last evaluation; -1 = doesn't matter
};

// How far a training has come on this rank, and what comes next: a step, an evaluation, the end.
// Pure.
//
// Invariant: ranks whose version() is the same have the same state, to the bit. An evaluation, or
// StopTraining, may change the program's own states between two steps: the version's marks count
// these changes, if there are own states.
class TrainingCourse {
 public:
  enum class Next { kStep, kEvaluation, kEnd };
  // The marks of a StateVersion.
  static constexpr int64_t kEvaluated = 1;
  static constexpr int64_t kFinished = 2;

  // Requires: `options` outlive it.
  explicit TrainingCourse(const TrainingOptions& options) : options_(options) {}
  // Call it before training if the program has states of its own.
  void KeepOwnStates() { has_own_states_ = true; }

  const TrainingProgress& progress() const { return progress_; }
  int64_t step() const { return progress_.step; }
  // The state that this rank has; nullopt: none that training could go on from.
  std::optional<StateVersion> version() const;
  // This rank's report of it, without its size.
  StateOffer Offer() const { return {.version = version(), .bytes = 0, .step_time = step_time_}; }

  Next next() const;
  bool IsDoneAt(const TrainingProgress& there) const;
  // Whether the loop's end is reached, by its length or by StopTraining.
  bool IsDone() const { return marks_.is_finished || IsDoneAt(progress_); }
  bool evaluation_is_due() const { return evaluation_is_due_; }
  // Whether the evaluation of this step has changed own states already: it isn't repeated.
  bool IsEvaluatedForGood() const { return has_own_states_ && IsEvaluatedHere(); }
  // Whether a step comes next for ranks with this state. Params: is_evaluated: these ranks have
  // done the evaluation that follows it.
  bool StepFollows(const StateVersion& state, bool is_evaluated) const;

  // Goes to another place: a checkpoint's, another rank's.
  void GoTo(const TrainingProgress& progress) { progress_ = progress; }
  // This rank has the state of its progress, as ranks had it in `generation`.
  void HasState(uint64_t generation) { generation_ = generation; }
  // Call it when a generation begins. is_evaluated: ranks have a state, and have done the
  // evaluation that follows it.
  void BeginGeneration(bool is_evaluated);

  void TimeStep(absl::Duration time) { step_time_ = time; }
  // The optimizer has stepped.
  void StepIsDone(uint64_t generation);
  // The step's samples are consumed; `place`: after them.
  void Consume(const SamplerState& place, bool last_of_epoch);
  void EvaluationIsDone();
  void EvaluationIsOver() { evaluation_is_due_ = false; }
  // The launcher asked all ranks to stop.
  void StopEarly() { is_stopped_ = true; }
  bool is_stopped() const { return is_stopped_; }

  // The program's marks, a part of checkpoints.
  LoopMarks& marks() { return marks_; }
  const LoopMarks& marks() const { return marks_; }

 private:
  bool IsEvaluatedAt(const TrainingProgress& there) const;  // whether an evaluation follows
  bool IsEvaluatedHere() const { return marks_.evaluated_step == progress_.step; }

  const TrainingOptions& options_;
  bool has_own_states_ = false;
  TrainingProgress progress_;
  std::optional<uint64_t> generation_;  // in which the state was computed; nullopt: no state
  LoopMarks marks_;
  absl::Duration step_time_;        // of the last step; 0 = unknown
  bool evaluation_is_due_ = false;  // after the last step that was done
  bool is_stopped_ = false;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_TRAINING_COURSE_H_
