#include "rendezvous/core/round.h"

#include <utility>

#include "base/check.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {

Round::Round(Generation generation, Instant formed, uint32_t world_size,
             std::vector<RoundMember> members)
    : generation_(generation),
      formed_(formed),
      world_size_(world_size),
      members_(std::move(members)),
      open_(members_.size()) {
  DDPRUN_CHECK(!members_.empty(), "a generation without nodes");
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
  return ++started_ == members_.size();
}

void Round::SetSucceeded(uint32_t group_rank) {
  if (!std::exchange(members_.at(group_rank).succeeded, true)) ++succeeded_;
}

void Round::AddFailure(WorkerFailure failure, Instant arrival) {
  for (ReportedFailure& known : failures_) {
    if (known.failure.rank != failure.rank) continue;
    known.failure = std::move(failure);
    return;
  }
  if (failures_.size() < kFailuresMax) failures_.push_back({std::move(failure), arrival});
}

}  // namespace ddprun::rendezvous
