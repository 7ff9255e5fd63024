#include "rendezvous/core/generation/round.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/timing.h"

// The live generation (R3).
//
// Goal: after each message the job asks "have all members started, succeeded, settled?". With up to
// 16,384 members (kNodesMax) a scan for each message would make a restart quadratic, so the answers
// are counters, and each setter changes at most one member. BrokenCounts() is the scan; tests and
// the simulation compare it with the counters.
//
// Invariant: open_ is the number of members with settled == false, where
//   settled = gone, or stopped and connected
//
//   event                     a        b                     open_
//   the generation forms      running  running               2
//   a answers GroupStopped    stopped  running               1
//   b answers GroupStopped    stopped  stopped               0   settled: the round closes
//   or b's stream breaks      stopped  stopped, no stream    1   a disconnected b is awaited
//   and b is lost             stopped  lost                  0
//
// A stopped member without a stream keeps the round open, because only nodes with a stream can be
// in the next generation: closing now would leave out a healthy node because its connection broke
// a moment ago. The rules for losses (R4) bound the wait.
//
// A member that succeeded may leave (R8): its node_order is 0 then, but its state isn't kLost, and
// it doesn't count as gone unless the generation has to end for another reason.

namespace ddprun::rendezvous {

Round::Round(Generation generation, Instant formed, std::vector<RoundMember> members,
             RoundTerms terms)
    : generation_(generation),
      formed_(formed),
      members_(std::move(members)),
      terms_(std::move(terms)),
      open_(members_.size()) {
  DDPRUN_CHECK(generation_ != Generation(), "generations are numbered from 1");
  DDPRUN_CHECK(!members_.empty(), "a generation without nodes");
  world_size_ = members_.back().placement.base_rank + members_.back().worker_count;
}

Assignment Round::AssignmentOf(uint32_t group_rank, uint64_t redone_to) const {
  const RoundMember& self = members_.at(group_rank);
  return {.generation = generation_,
          .restart_count = terms_.restart_count,
          .world_size = world_size_,
          .group_rank = group_rank,
          .group_world_size = static_cast<uint32_t>(members_.size()),
          .base_rank = self.placement.base_rank,
          .base_role_rank = self.placement.base_role_rank,
          .role_world_size = self.placement.role_world_size,
          .master_addr = terms_.master_addr,
          .master_port = terms_.master_port,
          .store_address = group_rank == 0 ? "" : terms_.store_address,
          .reason = terms_.reason,
          .rule = terms_.rule,
          .restarts_charged = terms_.restarts_charged,
          .redone_to = redone_to};
}

std::string Round::RanksText() const {
  std::string ranks;
  for (const RoundMember& member : members_) {
    if (ranks.size() >= kTextBytesMax) break;
    const uint32_t base = member.placement.base_rank;
    absl::StrAppend(&ranks, ranks.empty() ? "" : " ", member.node_id.value(), "=[", base, "..",
                    base + member.worker_count - 1, "]");
  }
  return Bounded(std::move(ranks), kTextBytesMax);
}

void Round::Refresh(RoundMember& member) {
  const bool settled =
      member.gone() || (member.state == RoundMember::State::kStopped && member.connected);
  if (settled == member.settled) return;
  member.settled = settled;
  settled ? --open_ : ++open_;
}

void Round::SetState(uint32_t group_rank, RoundMember::State state) {
  RoundMember& member = members_.at(group_rank);
  DDPRUN_CHECK(!member.gone(), member.node_id.value());
  member.state = state;
  if (member.gone()) ++gone_;
  Refresh(member);
}

void Round::SetConnected(uint32_t group_rank, bool connected) {
  RoundMember& member = members_.at(group_rank);
  member.connected = connected;
  Refresh(member);
}

void Round::SetNode(uint32_t group_rank, uint64_t node_order) {
  members_.at(group_rank).node_order = node_order;
}

bool Round::SetStarted(uint32_t group_rank) {
  RoundMember& member = members_.at(group_rank);
  if (std::exchange(member.started, true)) return false;
  DDPRUN_CHECK(started_ < members_.size(), member.node_id.value());
  return ++started_ == members_.size();
}

void Round::SetSucceeded(uint32_t group_rank, Instant now) {
  if (std::exchange(members_.at(group_rank).succeeded, true)) return;
  ++succeeded_;
  last_success_ = now;
}

// Reports the members that still run kOthersEndedAfter (30 s: longer than most uploads and last
// evaluations) after the latest success. Every success restarts the clock, so a job whose nodes end
// one by one reports nothing. Example with members 0 to 4, where 0 and 1 have succeeded at 0 s:
//
//   30 s   {2, 3, 4}
//   40 s   member 2 succeeds: at 70 s nothing, because {3, 4} were in the first report
//   90 s   member 3 succeeds: at 120 s {4}, once more because one member alone is left
//
// Called with every probe, so no timer of its own is needed.
std::vector<uint32_t> Round::TakeLaggards(Instant now) {
  if (last_success_.is_infinite() || now - last_success_ < kOthersEndedAfter) return {};
  last_success_ = Instant::Infinite();
  const std::set<uint32_t> ranks = NotSucceeded();
  if (laggards_ > 0 && (laggards_ == 1 || ranks.size() > 1)) return {};
  laggards_ = ranks.size();
  return {ranks.begin(), ranks.end()};
}

std::set<uint32_t> Round::NotSucceeded() const {
  std::set<uint32_t> ranks;
  for (uint32_t rank = 0; rank < members_.size(); ++rank) {
    if (!members_[rank].succeeded) ranks.insert(rank);
  }
  return ranks;
}

// The rank and the generation come from the sender's place in this round, not from its message: a
// wrong agent can't accuse another node's worker.
bool Round::AddFailure(uint32_t group_rank, WorkerFailure failure, Instant arrival) {
  const RoundMember& member = members_.at(group_rank);
  if (failure.local_rank >= member.worker_count) return false;
  failure.rank = member.placement.base_rank + failure.local_rank;
  failure.generation = generation_;
  failure.texts_left_out = false;
  failure.message = Bounded(std::move(failure.message), kTextBytesMax);
  failure.stderr_tail = Bounded(std::move(failure.stderr_tail), kTextBytesMax);
  failure.traceback = Bounded(std::move(failure.traceback), kTracebackBytesMax);
  failures_.Add(std::move(failure), arrival);
  return true;
}

void Round::AddLeft(uint32_t group_rank, const std::vector<uint32_t>& local_ranks) {
  const RoundMember& member = members_.at(group_rank);
  for (const uint32_t local_rank : local_ranks) {
    if (local_rank < member.worker_count) left_.insert(member.placement.base_rank + local_rank);
  }
}

std::vector<uint32_t> Round::LeftBeside(const NodeId& node_id) const {
  std::vector<uint32_t> ranks(left_.begin(), left_.end());
  for (const RoundMember& member : members_) {
    if (member.node_id != node_id) continue;
    const uint32_t base = member.placement.base_rank;
    std::erase_if(ranks,
                  [&](uint32_t rank) { return rank >= base && rank - base < member.worker_count; });
  }
  return ranks;
}

std::string Round::BrokenInvariant() const {
  uint32_t next_rank = 0;
  for (const RoundMember& member : members_) {
    if (member.placement.base_rank != next_rank) return "ranks are not contiguous";
    next_rank += member.worker_count;
    if (member.gone() && member.node_order != 0) return "a lost member with a node";
  }
  if (next_rank != world_size_) return "the world is not the sum of its nodes";
  if (std::string broken = failures_.BrokenInvariant(); !broken.empty()) return broken;
  for (const ReportedFailure& each : failures()) {
    if (each.failure.rank >= world_size_) return "a failure of no rank";
    if (each.failure.generation != generation_) return "a failure of another generation";
    if (each.arrival < formed_) return "a failure before the generation began";
  }
  return BrokenCounts();
}

std::string Round::BrokenCounts() const {
  size_t open = 0;
  size_t gone = 0;
  size_t started = 0;
  size_t succeeded = 0;
  for (const RoundMember& member : members_) {
    const bool settled =
        member.gone() || (member.state == RoundMember::State::kStopped && member.connected);
    if (settled != member.settled) return "a member is settled that is awaited, or the reverse";
    open += settled ? 0 : 1;
    gone += member.gone() ? 1 : 0;
    started += member.started ? 1 : 0;
    succeeded += member.succeeded ? 1 : 0;
  }
  if (open != open_) return "the number of awaited members is wrong";
  if (gone != gone_) return "the number of lost members is wrong";
  if (started != started_) return "the number of started members is wrong";
  return succeeded == succeeded_ ? "" : "the number of members that succeeded is wrong";
}

}  // namespace ddprun::rendezvous
