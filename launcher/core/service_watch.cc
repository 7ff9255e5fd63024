#include "launcher/core/service_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace ddprun::launcher {
namespace {

// A user who waits is told so after this long.
constexpr absl::Duration kTellMissingAfter = absl::Seconds(1);

}  // namespace

ServiceWatch::ServiceWatch(const ServiceTimeouts& timeouts, const rendezvous::JobSpec& job,
                           std::string endpoint, Instant now)
    : reach_(std::min(timeouts.reach, job.join_timeout)),
      reach_is_own_(timeouts.reach < job.join_timeout),
      loss_(timeouts.loss),
      lease_(job.lease),
      endpoint_(std::move(endpoint)),
      since_(now),
      last_contact_(now),
      tell_at_(now + kTellMissingAfter) {}

void ServiceWatch::OnWelcome() {
  state_ = State::kHeard;
  since_ = Instant::Infinite();
  tell_at_ = Instant::Infinite();
  last_error_.clear();
}

bool ServiceWatch::OnClosed(Instant now, std::string error) {
  last_error_ = std::move(error);
  if (state_ == State::kJoining) return false;
  const bool begins = state_ == State::kHeard;
  if (begins) {
    since_ = now;
    tell_at_ = now + kTellMissingAfter;
  }
  state_ = State::kLost;
  return begins;
}

ServiceWatch::Decision ServiceWatch::OnTimer(Instant now) {
  DDPRUN_CHECK(now >= last_contact_, "time went back");
  Decision decision;
  const bool in_lease = now < last_contact_ + lease_;
  if (state_ == State::kHeard && !in_lease) {
    state_ = State::kSilent;
    since_ = last_contact_;
    tell_at_ = now;
    last_error_ = absl::StrCat("silent for ", absl::FormatDuration(lease_));
    decision.lost = last_error_;
  } else if (state_ == State::kSilent && in_lease) {  // it speaks again
    state_ = State::kHeard;
    since_ = Instant::Infinite();
    tell_at_ = Instant::Infinite();
  }
  if (now >= Bound()) {
    decision.give_up = WhyGivenUp();
  } else if (now >= tell_at_) {
    tell_at_ = Instant::Infinite();
    decision.tell = WaitText(Bound() - now);
  }
  return decision;
}

Instant ServiceWatch::Deadline() const {
  const Instant next = state_ == State::kHeard ? last_contact_ + lease_ : Bound();
  return std::min(next, tell_at_);
}

absl::Duration ServiceWatch::Patience() const { return is_joining() ? reach_ : loss_; }

std::string ServiceWatch::WhyGivenUp() const {
  return absl::StrCat("no answer within ", absl::FormatDuration(Patience()),
                      !is_joining()   ? " (--service_loss_timeout)"
                      : reach_is_own_ ? " (--rdzv_conf read_timeout)"
                                      : " (--rdzv_conf join_timeout)",
                      last_error_.empty() ? "" : absl::StrCat("; last: ", last_error_));
}

std::string ServiceWatch::WaitText(absl::Duration left) const {
  return absl::StrCat(
      is_joining() ? "can't reach the rendezvous service at " : "lost the rendezvous service at ",
      endpoint_, last_error_.empty() ? " yet" : absl::StrCat(" (", last_error_, ")"),
      "; trying for ", absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))),
      is_joining() ? " more. Is node rank 0 up, is the address right, is the port open?"
                   : " more; the workers go on");
}

std::string ServiceWatch::BrokenInvariant() const {
  if ((state_ == State::kHeard) != since_.is_infinite()) return "a service is heard and missed";
  if (state_ == State::kHeard && !tell_at_.is_infinite()) return "a user is told of no loss";
  return "";
}

}  // namespace ddprun::launcher
