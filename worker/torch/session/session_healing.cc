// How new workers get the state beside a step of the ranks that have it
// (worker/torch/checkpoint/healing.cc).
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/torch/ddp/distributed_data_parallel_implementation.h"
#include "worker/torch/session/healing_choice.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {

std::map<std::string, CheckpointedState*> Session::Implementation::ExtrasOfAll() const {
  std::map<std::string, CheckpointedState*> extras = {{"scaler", scaler.get()},
                                                      {"data", sampler_checkpoint.get()},
                                                      {"batch", batch_checkpoint.get()}};
  for (const worker::SessionPart& part : parts) {
    if (options.zero_stage >= "2") continue;
    extras[part.name.empty() ? "buckets" : "buckets-" + part.name] = part.buckets.get();
  }
  return own.Beside(extras);
}

// A rank that was lost in an evaluation, or before the program ended training, has made the same
// steps as the others, but lacks what the evaluation changed in the program's own states.
int64_t Session::Implementation::Marks() const {
  const bool is_missing = IsEvaluated(progress) && loop_marks.evaluated_step != progress.step;
  return (own.empty() || is_missing ? 0 : kEvaluated) | (loop_marks.is_finished ? kFinished : 0);
}

worker::ReplicatedState Session::Implementation::StateOfAll() const {
  std::map<std::string, CheckpointedState*> extras = ExtrasOfAll();
  if (power_sgd != nullptr) extras["power_sgd"] = power_sgd_of_all.get();
  return {.module = *model, .optimizer = *optimizer, .extras = extras, .average = average.get()};
}

bool Session::Implementation::HealsBeside(const worker::KnownStates& known) const {
  if (options.healing == "before") return false;
  const TrainingProgress& newest = known.newest->progress;
  const bool evaluates = !evaluation_is_done && IsEvaluated(newest);
  const bool is_over = (known.newest->marks & kFinished) != 0 || DoneAt(newest);
  if (is_over || evaluates) return false;  // no step comes next
  // With these, parameters change before the end of a step, beside which they are sent.
  if (parts.size() > 1 || IsAny(parts.front())) return false;
  // Without a constant batch a step would have fewer samples; and a SyncBatchNorm's statistics
  // would include activations of ranks that lack the parameters.
  if (constant_batch == 0 || worker::HasSyncBatchNorm(*model)) return false;
  if (options.healing == "beside") return true;
  const auto learners =
      static_cast<uint32_t>(std::count(known.versions.begin(), known.versions.end(), known.newest));
  return worker::BesideTakesLess(known.bytes, known.step_time, context->world_size() - learners,
                                 learners);
}

absl::Status Session::Implementation::BeginHealing(const worker::KnownStates& known) {
  progress_before_healing = progress;
  DDPRUN_ASSIGN_OR_RETURN(healing, worker::Healing::Begin(*context, StateOfAll(), known));
  return loader->Reform(healing->learner(), healing->learners());
}

void Session::Implementation::WeighForLearners() {
  if (healing == nullptr) return;
  // Gradients are divided by the number of all ranks.
  const double all = static_cast<double>(context->world_size()) / healing->learners();
  for (Pass& one : passes) {
    one.weight *= healing->takes() ? 0 : all;
    if (healing->takes()) one.share = 0;
  }
  if (healing->takes()) step_share.indices.clear();
}

absl::Status Session::Implementation::FinishHealing() {
  if (healing == nullptr) return absl::OkStatus();
  const Instant asked = MonotonicNow();
  absl::Status finished = healing->Finish();
  Log(LogLevel::kInfo, absl::StrCat("rank ", context->rank(), " waited ",
                                    absl::ToInt64Milliseconds(MonotonicNow() - asked),
                                    " ms, after its passes, for new workers to have the state"));
  if (healing->has_taken()) {
    state_generation = healing->version().generation;
    DDPRUN_RETURN_IF_ERROR(SetRates());  // the restored state has the rate of the step before
  }
  return finished;
}

absl::Status Session::Implementation::EndHealing() {
  if (healing == nullptr) return absl::OkStatus();
  healing.reset();
  return loader->Reform(context->rank(), context->world_size());
}

absl::Status Session::Implementation::LeaveHealing() {
  if (healing == nullptr) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(healing->Abandon());
  if (healing->has_taken()) state_generation = healing->version().generation;
  if (healing->takes() && !healing->has_taken()) progress = progress_before_healing;
  healing.reset();
  return absl::OkStatus();
}

}  // namespace ddprun
