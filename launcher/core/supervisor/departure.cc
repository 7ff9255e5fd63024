#include "launcher/core/supervisor/departure.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/text.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

// When something fails after the commit, ranks that are just behind have this long to reach the
// step.
constexpr absl::Duration kJustBehind = absl::Milliseconds(250);

}  // namespace

void AgreedStop::Commit(Instant now, absl::Duration within) {
  DDPRUN_CHECK(!committed_, "a generation stops at one step");
  committed_ = true;
  reach_end_ = now + within / rendezvous::kReachingShare;
  save_end_ = now + within;
}

void AgreedStop::Hasten(Instant now) {
  DDPRUN_CHECK(committed_, "only workers on their way to a step can be hurried there");
  reach_end_ = std::min(reach_end_, now + kJustBehind);
}

AgreedStop::Due AgreedStop::OnTimer(Instant now) {
  if (now >= save_end_) return Due::kTimeIsOver;
  if (now < reach_end_) return Due::kNothing;
  reach_end_ = Instant::Infinite();
  return Due::kLook;
}

Instant AgreedStop::Deadline() const { return std::min(reach_end_, save_end_); }

std::string AgreedStop::BrokenInvariant() const {
  const bool has_bounds = !reach_end_.is_infinite() || !save_end_.is_infinite();
  return has_bounds && !committed_ ? "a stop that isn't agreed has bounds" : "";
}

Departure::Departure(PreemptionSettings settings, SignalPolicy signals, Instant now)
    : settings_(settings),
      signals_(std::move(signals)),
      at_(now + (settings.after - settings.deadline)) {}

Departure::Answer Departure::OnSignal(int number, const Situation& situation) {
  const bool is_first = TakeAsked() == 0 && !is_going();
  if (!is_first || !situation.can_agree) return Answer::kLeave;  // later ones don't wait
  if (Preempts(number, situation.committed)) return Answer::kAgree;
  const bool may_preempt = number == SIGTERM && signals_.term_preempts_who_asks;
  if (!may_preempt || !situation.all_started) return Answer::kLeave;
  asked_ = number;
  return Answer::kAskWorkers;
}

int Departure::TakeAsked() { return std::exchange(asked_, 0); }

void Departure::Begin(int number) {
  DDPRUN_CHECK(!is_going(), "a node is taken away once");
  DDPRUN_CHECK(number > 0, "a signal takes it away");
  asked_ = 0;
  signal_ = number;
}

void Departure::BeginFor(std::string why) {
  Begin(SIGTERM);
  why_ = std::move(why);
}

void Departure::Drain(std::string why) {
  BeginFor(std::move(why));
  drained_ = true;
}

void Departure::AwaitAgreement(Instant now) {
  DDPRUN_CHECK(is_going(), "nothing is agreed for a node that stays");
  bound_ = now + settings_.deadline / rendezvous::kReachingShare;
}

void Departure::AwaitOthers(Instant now) {
  DDPRUN_CHECK(is_going(), "a node that stays need not wait to leave");
  bound_ = now + settings_.deadline;
}

Departure::Due Departure::OnTimer(Instant now, Instant real_now) {
  if (real_now >= at_) {
    at_ = Instant::Infinite();
    return Due::kTime;
  }
  if (now >= bound_) {
    bound_ = Instant::Infinite();
    return Due::kBound;
  }
  return Due::kNothing;
}

bool Departure::Preempts(int number, bool committed) const {
  if (signals_.Preempts(number)) return true;
  if (is_going()) return number == signal_;
  return number == SIGTERM && signals_.term_preempts_who_asks && committed;
}

std::string Departure::WhyLeaving(int number, absl::string_view verb) const {
  const bool has_own = number == signal_ && !why_.empty();
  return has_own ? why_ : absl::StrCat(verb, SignalName(number));
}

std::string Departure::TimeText() const {
  return absl::StrCat("its time is over (--preempt_after ", absl::FormatDuration(settings_.after),
                      ")");
}

std::string Departure::BrokenInvariant() const {
  if (asked_ != 0 && is_going()) return "workers are asked about a preemption that has begun";
  if (drained_ && !is_going()) return "a drained node stays";
  if (!why_.empty() && signal_ != SIGTERM) return "a preemption without SIGTERM has a reason";
  if (!bound_.is_infinite() && !is_going()) return "a node that stays waits to leave";
  return "";
}

}  // namespace ddprun::launcher
