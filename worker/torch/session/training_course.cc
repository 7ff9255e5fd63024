#include "worker/torch/session/training_course.h"

namespace ddprun::worker {

bool TrainingCourse::IsDoneAt(const TrainingProgress& there) const {
  return options_.steps > 0 ? there.step >= options_.steps : there.epoch >= options_.epochs;
}

bool TrainingCourse::IsEvaluatedAt(const TrainingProgress& there) const {
  const int64_t every = options_.evaluate_every;
  if (every > 0) return there.step > 0 && there.step % every == 0;
  return there.epoch > 0 && there.epoch_samples == 0;
}

// A rank that was lost in an evaluation, or before the program ended training, has made the same
// steps as the others, but lacks what the evaluation changed in the program's own states.
std::optional<StateVersion> TrainingCourse::version() const {
  if (!generation_.has_value()) return std::nullopt;
  const bool is_missing = IsEvaluatedAt(progress_) && !IsEvaluatedHere();
  const int64_t marks =
      (has_own_states_ && !is_missing ? kEvaluated : 0) | (marks_.is_finished ? kFinished : 0);
  return StateVersion{.progress = progress_, .generation = *generation_, .marks = marks};
}

// The end comes first, because it makes the last evaluation.
TrainingCourse::Next TrainingCourse::next() const {
  if (IsDone()) return Next::kEnd;
  return evaluation_is_due_ ? Next::kEvaluation : Next::kStep;
}

bool TrainingCourse::StepFollows(const StateVersion& state, bool is_evaluated) const {
  const bool is_over = (state.marks & kFinished) != 0 || IsDoneAt(state.progress);
  return !is_over && (is_evaluated || !IsEvaluatedAt(state.progress));
}

// A checkpoint of an epoch's last step is from before its evaluation, and so are copies of shares.
// An evaluation may change the program's own states: if ranks have gone back to such a state, it is
// made again. (A new rank doesn't know the evaluations yet.)
void TrainingCourse::BeginGeneration(bool is_evaluated) {
  evaluation_is_due_ =
      IsEvaluatedAt(progress_) && !IsEvaluatedHere() && (has_own_states_ || !is_evaluated);
}

void TrainingCourse::StepIsDone(uint64_t generation) {
  ++progress_.step;
  generation_ = generation;
}

void TrainingCourse::Consume(const SamplerState& place, bool last_of_epoch) {
  progress_.epoch = static_cast<int64_t>(place.epoch);
  progress_.epoch_samples = static_cast<int64_t>(place.consumed);
  evaluation_is_due_ = options_.evaluate_every > 0 ? IsEvaluatedAt(progress_) : last_of_epoch;
}

void TrainingCourse::EvaluationIsDone() {
  if (has_own_states_) marks_.evaluated_step = progress_.step;
}

}  // namespace ddprun::worker
