#include "rendezvous/core/job/farewell.h"

#include <algorithm>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/failures/failure_list.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

Audience AudienceOf(const NodeTable::Nodes& nodes) {
  Audience audience{.nodes = std::max<size_t>(nodes.size(), 1)};
  const auto worth = [](const Node& node) {
    return std::tuple(node.stream.has_value(), node.info.hosts_service, node.info.hosts_endpoint);
  };
  const Node* reader = nullptr;
  for (const auto& [order, node] : nodes) {
    const bool is_first = node.group_rank.has_value() && *node.group_rank == 0;
    if (!node.info.hosts_service && !node.info.hosts_endpoint && !is_first) continue;
    if (reader == nullptr || worth(node) > worth(*reader)) reader = &node;
  }
  if (reader == nullptr) return audience;
  audience.reader = reader->id;
  audience.reader_host = reader->info.hostname;
  return audience;
}

void Farewell::Begin(Instant now, Verdict verdict, const Audience& audience) {
  DDPRUN_CHECK(state_ == State::kAlive, "a job ends once");
  DDPRUN_CHECK(!verdict.rule.empty(), "a verdict names its rule");
  state_ = State::kNotifying;
  end_ = now + kFarewell;
  verdict_ = std::move(verdict);
  awaits_lost_ = last_loss_ && now < *last_loss_ + kFarewell;
  // A job that was stopped from outside doesn't wait: its user or scheduler wants it to end.
  const bool by_itself =
      verdict_.outcome != Outcome::kStopped && verdict_.outcome != Outcome::kPreempted;
  if (by_itself && joined_ < agents_) late_agents_ = agents_ - joined_;
  reader_ = audience.reader;
  whole_ = shared_ = ShareMessage(verdict_);
  const size_t bytes_max = VerdictBytesFor(audience.nodes);
  if (BytesOnWire(verdict_) <= bytes_max) return;
  Verdict cut = verdict_;
  cut.whole_on = audience.reader_host;
  shared_ = ShareMessage(CutVerdict(std::move(cut), bytes_max));
}

const SharedMessage& Farewell::WordsFor(const NodeId& node) const {
  DDPRUN_CHECK(begun(), "the job is not over");
  return node == reader_ ? whole_ : shared_;
}

bool Farewell::Finish(Instant now, bool anybody_left) {
  DDPRUN_CHECK(begun(), "the job is not over");
  const bool tells = (anybody_left || awaits_lost_) && now < end_;
  const bool waits = late_agents_ > 0 && now < agents_until_;
  if (state_ == State::kForgotten || tells || waits) return false;
  late_agents_ = 0;
  state_ = State::kForgotten;
  end_ = Instant::Infinite();
  return true;
}

void Farewell::OnAgent(const std::string& host) {
  if (agents_ == 0) return;
  ++joined_;
  hosts_.insert(host);
}

Farewell::Newcomer Farewell::OnNewcomer(Instant now, const std::string& host) {
  DDPRUN_CHECK(begun(), "the job is not over");
  if (late_agents_ == 0) return Newcomer::kStranger;
  if (hosts_.contains(host)) {
    late_agents_ = 0;
    return Newcomer::kNextJob;
  }
  --late_agents_;
  hosts_.insert(host);
  end_ = std::max(end_, now + kFarewell);
  return Newcomer::kLate;
}

absl::Status Farewell::Refusal() const {
  DDPRUN_CHECK(begun(), "the job is not over");
  return absl::AbortedError(absl::StrCat("the job has ended (", OutcomeText(verdict_.outcome), ": ",
                                         verdict_.reason,
                                         "); to run it again, start all nodes anew"));
}

std::string Farewell::BrokenInvariant() const {
  if ((state_ == State::kNotifying) == end_.is_infinite()) return "a farewell without an end";
  if (begun() == verdict_.rule.empty()) return "a verdict of a job that is not over";
  if (!begun() && late_agents_ > 0) return "agents are late for a job that lives";
  if (begun() != (whole_ != nullptr && shared_ != nullptr)) return "a verdict without its words";
  return "";
}

}  // namespace ddprun::rendezvous
