#include "rendezvous/core/farewell.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

void Farewell::Begin(Instant now, Verdict verdict) {
  DDPRUN_CHECK(state_ == State::kAlive, "a job ends once");
  DDPRUN_CHECK(!verdict.rule.empty(), "a verdict names its rule");
  state_ = State::kTelling;
  end_ = now + kFarewell;
  verdict_ = std::move(verdict);
}

bool Farewell::Finish(Instant now, bool anybody_left) {
  DDPRUN_CHECK(begun(), "the job is not over");
  if (state_ == State::kForgotten || (anybody_left && now < end_)) return false;
  state_ = State::kForgotten;
  end_ = Instant::Infinite();
  return true;
}

absl::Status Farewell::Refusal() const {
  DDPRUN_CHECK(begun(), "the job is not over");
  return absl::AbortedError(absl::StrCat("the job has ended (", OutcomeText(verdict_.outcome), ": ",
                                         verdict_.reason,
                                         "); to run it again, start all nodes anew"));
}

std::string Farewell::BrokenInvariant() const {
  if ((state_ == State::kTelling) == end_.is_infinite()) return "a farewell without an end";
  if (begun() == verdict_.rule.empty()) return "a verdict of a job that is not over";
  return "";
}

}  // namespace ddprun::rendezvous
