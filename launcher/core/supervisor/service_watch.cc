#include "launcher/core/supervisor/service_watch.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace ddprun::launcher {
namespace {

// How long the service doesn't answer before the user is notified.
constexpr absl::Duration kNotifyMissingAfter = absl::Seconds(1);

}  // namespace

ServiceWatch::ServiceWatch(const ServiceTimeouts& timeouts, const rendezvous::JobSpec& job,
                           std::string endpoint, Instant now)
    : reach_(std::min(timeouts.reach, job.join_timeout)),
      reach_is_own_(timeouts.reach < job.join_timeout),
      unknown_name_(timeouts.unknown_name),
      loss_(timeouts.loss),
      loss_without_workers_(timeouts.loss_without_workers),
      job_lease_(job.lease),
      lease_(job.lease),
      endpoint_(std::move(endpoint)),
      since_(now),
      last_contact_(now),
      tell_at_(now + kNotifyMissingAfter) {}

void ServiceWatch::OnHeard(Instant now) {
  last_contact_ = now;
  if (state_ == State::kSilent) BeHeard();
}

void ServiceWatch::OnWelcome() { BeHeard(); }

void ServiceWatch::BeHeard() {
  state_ = State::kHeard;
  since_ = Instant::Infinite();
  name_unknown_since_ = Instant::Infinite();
  tell_at_ = Instant::Infinite();
  last_error_.clear();
}

bool ServiceWatch::OnClosed(Instant now, std::string error, bool name_unknown) {
  last_error_ = std::move(error);
  if (state_ == State::kJoining) {
    name_unknown_since_ = name_unknown ? std::min(name_unknown_since_, now) : Instant::Infinite();
    return false;
  }
  const bool begins = state_ == State::kHeard;
  if (begins) {
    since_ = now;
    tell_at_ = now + kNotifyMissingAfter;
  }
  state_ = State::kLost;
  return begins;
}

void ServiceWatch::OnWorkers(Instant now, bool go_on) {
  if (go_on) {
    halted_at_ = Instant::Infinite();
  } else if (halted_at_.is_infinite()) {
    halted_at_ = now;
    if (is_missing() && LimitNow() == Limit::kLossWithoutWorkers) tell_at_ = now;
  }
}

ServiceWatch::Decision ServiceWatch::OnTimer(Instant now) {
  DDPRUN_CHECK(now >= last_contact_, "time went back");
  Decision decision;
  if (state_ == State::kHeard && now >= last_contact_ + lease_) {
    state_ = State::kSilent;
    since_ = last_contact_;
    tell_at_ = now;
    last_error_ = absl::StrCat("silent for ", absl::FormatDuration(lease_));
    decision.lost = last_error_;
  }
  if (now >= Bound()) {
    decision.give_up = WhyGivenUp();
  } else if (now >= tell_at_) {
    tell_at_ = Instant::Infinite();
    told_since_ = since_;
    decision.tell = WaitText(Bound() - now);
  }
  return decision;
}

std::optional<std::string> ServiceWatch::TakeReturn(Instant now) {
  if (state_ != State::kHeard || told_since_.is_infinite()) return std::nullopt;
  const absl::Duration missed = now - std::exchange(told_since_, Instant::Infinite());
  return absl::StrCat("the rendezvous service at ", endpoint_, " answers now, after ",
                      absl::FormatDuration(absl::Ceil(missed, absl::Seconds(1))));
}

std::optional<ServiceWatch::Absence> ServiceWatch::Look(Instant now) const {
  if (state_ == State::kHeard) return std::nullopt;
  return Absence{.lasted = now - since_,
                 .left = std::max(Bound() - now, absl::ZeroDuration()),
                 .why = last_error_,
                 .workers_go_on = halted_at_.is_infinite()};
}

Instant ServiceWatch::Deadline() const {
  const Instant next = state_ == State::kHeard ? last_contact_ + lease_ : Bound();
  return std::min(next, tell_at_);
}

ServiceWatch::Limit ServiceWatch::LimitNow() const {
  if (is_joining()) {
    const bool name_first = BoundOf(Limit::kUnknownName) < BoundOf(Limit::kReach);
    return name_first ? Limit::kUnknownName : Limit::kReach;
  }
  return BoundOf(Limit::kLossWithoutWorkers) < BoundOf(Limit::kLoss) ? Limit::kLossWithoutWorkers
                                                                     : Limit::kLoss;
}

Instant ServiceWatch::BoundOf(Limit limit) const {
  switch (limit) {
    case Limit::kReach:
      return since_ + reach_;
    case Limit::kUnknownName:
      return name_unknown_since_ + unknown_name_;
    case Limit::kLoss:
      return since_ + loss_;
    case Limit::kLossWithoutWorkers:
      return std::max(since_, halted_at_) + loss_without_workers_;
  }
  return Instant::Infinite();
}

std::string ServiceWatch::WhyGivenUp() const {
  std::string last = last_error_.empty() ? "" : absl::StrCat("; last: ", last_error_);
  switch (LimitNow()) {
    case Limit::kReach:
      return absl::StrCat(
          "no answer within ", absl::FormatDuration(reach_),
          reach_is_own_ ? " (--rdzv_conf read_timeout)" : " (--rdzv_conf join_timeout)", last);
    case Limit::kUnknownName:
      return absl::StrCat(last_error_, ".");
    case Limit::kLoss:
      return absl::StrCat("no answer within ", absl::FormatDuration(loss_),
                          " (--service_loss_timeout)", last);
    case Limit::kLossWithoutWorkers:
      return absl::StrCat("no answer within ", absl::FormatDuration(loss_without_workers_),
                          " while this node has no workers that could go on "
                          "(--service_loss_timeout)",
                          last);
  }
  return last;
}

std::string ServiceWatch::WaitText(absl::Duration left) const {
  const bool is_etcd = absl::StartsWith(endpoint_, kEtcdEndpoint);
  const std::string where =
      absl::StrCat("the rendezvous service ", is_etcd ? "by " : "at ", endpoint_,
                   last_error_.empty() ? "" : absl::StrCat(" (", last_error_, ")"));
  const std::string wait = absl::StrCat(
      "; trying for ", absl::FormatDuration(absl::Ceil(left, absl::Seconds(1))), " more");
  if (is_joining()) {
    // Without an address it doesn't matter whether that node is up.
    return absl::StrCat("can't reach ", where, last_error_.empty() ? " yet" : "", wait,
                        is_name_unknown() ? "."
                        : is_etcd         ? ". Is etcd up, is the address right, is the port open?"
                                  : ". Is node rank 0 up, is the address right, is the port open?");
  }
  return absl::StrCat("lost ", where, wait,
                      halted_at_.is_infinite() ? "; the workers go on"
                                               : "; without it this node's workers can't go on");
}

std::string ServiceWatch::BrokenInvariant() const {
  if ((state_ == State::kHeard) != since_.is_infinite()) return "a service is heard and missed";
  if (state_ == State::kHeard && !tell_at_.is_infinite()) return "a user is told of no loss";
  if (is_name_unknown() && !is_joining()) return "a service that was there has an unknown name";
  return "";
}

}  // namespace ddprun::launcher
