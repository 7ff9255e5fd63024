#ifndef DDPRUN_RENDEZVOUS_CORE_ROUND_H_
#define DDPRUN_RENDEZVOUS_CORE_ROUND_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/first_cause.h"
#include "rendezvous/core/rank_assigner.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// One node of the live generation.
struct RoundMember {
  // Assigned (or being so) → asked to stop → its process tree is empty; or gone.
  enum class State { kRunning, kStopping, kStopped, kLost, kLeft };

  uint64_t node_order = 0;  // in the node table; 0 = it is there no more
  NodeId node_id;
  std::string hostname;
  uint32_t worker_count = 0;
  Placement placement;
  State state = State::kRunning;
  bool connected = true;
  bool started = false;    // all its workers were started
  bool succeeded = false;  // all its workers ended with 0
  bool settled = false;    // nothing more is awaited from it

  bool gone() const { return state == State::kLost || state == State::kLeft; }
};

// The live generation, from its assignment until every member has answered that its workers are
// gone, or is gone itself (R3). Keeps the counts that decide this, so that a message costs O(1).
// Members are named by group rank.
class Round {
 public:
  Round(Generation generation, Instant formed, uint32_t world_size,
        std::vector<RoundMember> members);

  Generation generation() const { return generation_; }
  Instant formed() const { return formed_; }
  uint32_t world_size() const { return world_size_; }
  const std::vector<RoundMember>& members() const { return members_; }
  const RoundMember& member(uint32_t group_rank) const { return members_.at(group_rank); }

  void SetState(uint32_t group_rank, RoundMember::State state);
  // Whether the member has a stream; one without keeps the round open until it is back or lost.
  void SetConnected(uint32_t group_rank, bool connected);
  // Ties the member to a node of the table, or to none (0).
  void SetNode(uint32_t group_rank, uint64_t node_order);
  // True when it was the last one: all workers run.
  bool SetStarted(uint32_t group_rank);
  void SetSucceeded(uint32_t group_rank);
  // Notes a failure, or completes the one of the same rank. Bound: the first kFailuresMax.
  void AddFailure(WorkerFailure failure, Instant arrival);

  // Notes how far a member's workers were.
  void AddStep(std::optional<uint64_t> step) { step_ = std::max(step_, step); }

  // Highest step that one of its workers marked; nullopt = none marks.
  std::optional<uint64_t> step() const { return step_; }
  // Nothing more is awaited from any member.
  bool settled() const { return open_ == 0; }
  bool any_gone() const { return gone_ > 0; }
  size_t succeeded() const { return succeeded_; }
  bool any_succeeded() const { return succeeded_ > 0; }
  bool all_succeeded() const { return succeeded_ == members_.size(); }
  const std::vector<ReportedFailure>& failures() const { return failures_; }

 private:
  void Refresh(RoundMember& member);

  Generation generation_;
  Instant formed_;
  uint32_t world_size_;
  std::vector<RoundMember> members_;
  size_t open_;
  size_t gone_ = 0;
  size_t started_ = 0;
  size_t succeeded_ = 0;
  std::vector<ReportedFailure> failures_;
  std::optional<uint64_t> step_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_ROUND_H_
