#include "worker/torch/session/call_order.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace ddprun::worker {

void CallOrder::Prepare(size_t parts) {
  place_ = Place::kBetweenBatches;
  calls_.resize(parts);
}

absl::Status CallOrder::CheckAdvance(int64_t step) const {
  if (place_ == Place::kUnprepared) {
    return Misuse("Batches() before Prepare(): there is no model yet that learns from them");
  }
  if (place_ != Place::kBatch && place_ != Place::kBackwardDone) return absl::OkStatus();
  return Misuse(absl::StrCat(
      "a batch of step ", step + 1, " got no ",
      place_ == Place::kBatch ? "Backward() and Step()" : "Step()",
      ": each batch needs both, accumulated ones too (Step() knows which is the step's last)"));
}

void CallOrder::OpenBatch() {
  place_ = Place::kBatch;
  calls_.assign(calls_.size(), {});
}

bool CallOrder::NoteForward(size_t part, bool is_graded) {
  const bool in_batch =
      place_ == Place::kBatch || (place_ == Place::kBackwardDone && calls_.size() > 1);
  if (!in_batch) return false;
  (is_graded ? calls_[part].forward : calls_[part].ungraded) = true;
  return is_graded;
}

absl::Status CallOrder::CheckBackward(std::optional<size_t> of) const {
  Calls some;  // what any of these modules was called for
  for (size_t part = 0; part < calls_.size(); ++part) {
    if (of.has_value() && of != part) continue;
    some.forward = some.forward || calls_[part].forward;
    some.ungraded = some.ungraded || calls_[part].ungraded;
    some.backward = some.backward || calls_[part].backward;
  }
  if (place_ == Place::kBackwardDone && some.backward) {
    return Misuse(
        "Backward() was called twice for one batch: gradients are averaged in the first; add the "
        "losses up and call it once");
  }
  if (place_ != Place::kBatch && place_ != Place::kBackwardDone) {
    return Misuse(
        "Backward() without a batch: it belongs inside `for (const Batch& batch : "
        "session.Batches())`");
  }
  if (!some.forward && some.ungraded) {
    return Misuse(
        "the session's model was called without gradients: end the scope of the "
        "torch::NoGradGuard (or InferenceMode) before the call whose loss is learned from");
  }
  if (!some.forward) {
    return Misuse(
        "Backward() of a loss that the session's model had no part in: call what Prepare() "
        "returned instead of the module, or gradients would not be averaged over the workers");
  }
  return absl::OkStatus();
}

void CallOrder::NoteBackward(std::optional<size_t> of) {
  place_ = Place::kBackwardDone;
  for (size_t part = 0; part < calls_.size(); ++part) {
    if (!of.has_value() || of == part) calls_[part].backward = true;
  }
}

absl::Status CallOrder::CheckStepOf(size_t part, const std::string& name) const {
  if (place_ == Place::kBackwardDone && calls_[part].backward) return absl::OkStatus();
  return Misuse(absl::StrCat("Step() of '", name, "' before Backward() of its loss"));
}

void CallOrder::NoteStepOf(size_t part) {
  calls_[part].backward = false;
  const bool others_are =
      std::any_of(calls_.begin(), calls_.end(), [](const Calls& calls) { return calls.backward; });
  place_ = others_are ? Place::kBackwardDone : Place::kBatch;
  has_stepped_one_ = true;
}

absl::Status CallOrder::CheckStep() const {
  if (place_ == Place::kBackwardDone || (place_ == Place::kBatch && has_stepped_one_)) {
    return absl::OkStatus();
  }
  return Misuse(place_ == Place::kBatch
                    ? "Step() before Backward(): this batch has no gradients yet"
                    : "Step() without a batch: it comes once for each, after Backward(); was it "
                      "called twice?");
}

absl::Status CallOrder::CheckStepWithFunction() const {
  if (place_ == Place::kBatch) return absl::OkStatus();
  return Misuse("Step(function) without a batch, or after Backward(), which it calls itself");
}

absl::Status CallOrder::CheckSave(bool step_is_over) const {
  if (place_ == Place::kUnprepared) {
    return Misuse("Save() before Prepare(): there is nothing to save yet");
  }
  if (step_is_over && place_ != Place::kBatch && place_ != Place::kBackwardDone) {
    return absl::OkStatus();
  }
  return Misuse("Save() in the middle of a step: call it after the Step() that returns true");
}

void CallOrder::CloseBatch() {
  place_ = Place::kBetweenBatches;
  has_stepped_one_ = false;
}

}  // namespace ddprun::worker
