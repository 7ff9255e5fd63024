#include "rendezvous/core/members/node.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

bool NodeTold::TakeProgress(Instant now, const Renewal& renewal, uint32_t worker_count) {
  if (renewal.progress.empty()) return false;
  progress = renewal.progress;
  progress.resize(std::min<size_t>(progress.size(), worker_count));
  step_time = renewal.step_time;
  progress_at = now;
  can_rejoin = renewal.can_rejoin;
  hold_ups = renewal.hold_ups;
  return true;
}

std::vector<uint32_t> NodeTold::TakeGpus(Instant now, const std::vector<GpuUse>& now_used) {
  std::vector<uint32_t> lost;
  if (now_used.empty()) return lost;
  for (const GpuUse& gpu : now_used) {
    const bool was_lost = std::any_of(gpus.begin(), gpus.end(), [&](const GpuUse& old) {
      return old.index == gpu.index && old.lost;
    });
    if (gpu.lost && !was_lost) lost.push_back(gpu.index);
  }
  gpus = now_used;
  gpus_at = now;
  return lost;
}

bool Node::IsLive(Instant now, const ProbePace& pace) const {
  return stream && now - heard <= 2 * pace.interval;
}

Instant Node::deadline() const { return std::min({lease_end, grace_end, stop_bound}); }

void Node::Resume(uint64_t sequence) {
  DDPRUN_CHECK(!stream && processed == 0, id.value());
  processed = sequence;
}

void Node::Recover(const NodeRecord& record, Instant now, std::optional<absl::Duration> lease) {
  DDPRUN_CHECK(!stream && processed == 0, id.value());
  stream_number = record.stream_number;
  processed = recording = confirmed = record.settled;
  draining = record.draining;
  answered = record.answered;
  proof = heard = closed_at = now;
  if (lease) lease_end = now + *lease;
}

void Node::AwaitSettlement() {
  if (unsettled == 0) unsettled = processed;
}

void Node::Update(const NodeInfo& said, bool idle) {
  info.address = said.address;
  info.store_address = said.store_address;
  if (idle) info.master_port = said.master_port;
}

void Node::Greet(Instant now, std::optional<absl::Duration> lease) {
  DDPRUN_CHECK(stream.has_value(), id.value());
  heard = now;
  proof = now;
  closed_at = Instant::Infinite();
  grace_end = Instant::Infinite();
  idle_nonce = 0;
  standby.reset();
  silent = false;
  if (lease) lease_end = now + *lease;
}

void Node::MissStream(Instant now, std::optional<absl::Duration> grace) {
  DDPRUN_CHECK(!stream, id.value());
  standby.reset();
  closed_at = now;
  grace_end = grace ? now + *grace : Instant::Infinite();
}

void Node::Renew(Instant now, Instant sent, absl::Duration lease) {
  DDPRUN_CHECK(sent <= now, "a probe was renewed before it was sent");
  heard = now;
  answered = true;
  proof = std::max(proof, sent);
  // An answer from before the silence proves nothing about the time after it.
  const bool is_back = silent && sent + lease > now;
  if (is_back) silent = false;
  lease_end = is_back ? sent + lease : std::max(lease_end, sent + lease);
}

bool Node::ShowsIdle(uint64_t nonce) {
  // A later answer may come over another connection, and so overtake reports on this one.
  if (idle_nonce == 0 || nonce != idle_nonce) return false;
  idle_nonce = 0;
  return true;
}

Node::Sequence Node::TakeSequence(uint64_t sequence) {
  if (sequence == processed + 1) {
    processed = sequence;
    return Sequence::kNext;
  }
  return sequence != 0 && sequence <= processed ? Sequence::kSeen : Sequence::kGap;
}

void Node::BeginCleaning(Generation generation, Instant bound) {
  DDPRUN_CHECK(!group_rank, id.value());
  cleaning = generation;
  BeginStopping(bound);
}

void Node::BeginStopping(Instant bound) {
  if (stop_bound.is_infinite()) stop_bound = bound;
}

void Node::EndStopping() {
  cleaning = Generation();
  stop_bound = Instant::Infinite();
}

void Node::EndStopping(uint32_t master_port) {
  EndStopping();
  info.master_port = master_port;
}

void Node::BecomeMember(uint32_t rank) {
  DDPRUN_CHECK(!group_rank && cleaning == Generation(), id.value());
  group_rank = rank;
  told.progress.clear();
  told.hold_ups.clear();
  told.can_rejoin = false;
  idle_nonce = 0;  // an answer to it would be about the last generation
  standby.reset();
}

void Node::BecomeWaiting() {
  Settle();
  group_rank.reset();
  told.progress.clear();
  told.hold_ups.clear();
  told.can_rejoin = false;
}

void Node::TakeStandby(const Standby& sent) {
  DDPRUN_CHECK(stream && !group_rank, id.value());
  standby = sent;
}

uint32_t Node::UsePort() { return std::exchange(info.master_port, 0); }

void Node::Retire() {
  BecomeWaiting();
  EndStopping();
  silent = false;
  lease_end = Instant::Infinite();
  GiveUp();  // the node has until the end of the farewell (R8)
}

// Messages that arrived meanwhile are read only after this step, and perhaps after one more pause,
// so no bound may end before they can be.
void Node::Extend(Instant now, absl::Duration stall, const ProbePace& pace, absl::Duration grace) {
  DDPRUN_CHECK(stall > absl::ZeroDuration(), absl::FormatDuration(stall));
  const auto extend = [&](Instant& end, absl::Duration least) {
    if (!end.is_infinite()) end = std::max(end + stall, now + least);
  };
  extend(lease_end, pace.interval + pace.pause());
  extend(grace_end, grace);
  extend(stop_bound, pace.interval + pace.pause());
  heard = heard + stall;
}

std::string Node::BrokenInvariant() const {
  const auto broken = [&](const char* what) { return absl::StrCat(id.value(), ": ", what); };
  if (order == 0 || id.value().empty()) return broken("a node without a name or an order");
  if (stream && !closed_at.is_infinite()) return broken("an open stream that closed");
  if (stream && !grace_end.is_infinite()) return broken("a grace beside an open stream");
  if (group_rank && cleaning != Generation()) {
    return broken("a member that cleans up another generation");
  }
  if (cleaning != Generation() && stop_bound.is_infinite()) return broken("a stop without a bound");
  if (group_rank && standby) return broken("a member that waits");
  if (!group_rank && !told.progress.empty()) return broken("progress without a rank");
  if (told.can_rejoin && told.progress.empty()) return broken("workers without progress rejoin");
  if (proof > heard) return broken("a proof of life that nobody heard");
  if (unsettled > processed) return broken("an event is unsettled that nobody processed");
  if (recording > settled() || confirmed > recording) {
    return broken("more is confirmed than a record has settled");
  }
  return "";
}

std::string NodeText(const Node& node) {
  return node.id.value() == node.info.hostname
             ? absl::StrCat("node ", node.id.value())
             : absl::StrCat("node ", node.id.value(), " on ", node.info.hostname);
}

}  // namespace ddprun::rendezvous
