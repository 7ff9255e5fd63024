#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_ROUND_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_ROUND_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/failures/failure_list.h"
#include "rendezvous/core/failures/first_cause.h"
#include "rendezvous/core/generation/rank_assigner.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::rendezvous {

// One node of the live generation.
struct RoundMember {
  // Has its assignment, or gets it → was asked to stop → its process tree is empty; or it is gone.
  enum class State { kRunning, kStopping, kStopped, kLost, kLeft };

  uint64_t node_order = 0;  // join order in the node table; 0 = not in it any more
  NodeId node_id;
  uint32_t worker_count = 0;
  Placement placement;
  State state = State::kRunning;
  bool connected = true;
  bool started = false;    // all its workers were started
  bool succeeded = false;  // all its workers ended with 0
  bool settled = false;    // the round doesn't wait for it any more

  bool gone() const { return state == State::kLost || state == State::kLeft; }
};

// The live generation, from its assignment until every member has answered that its workers are
// gone, or is gone itself (R3). Keeps counters, so that a message costs O(1). Members are named by
// group rank.
class Round {
 public:
  // Requires: members by group rank, their base ranks contiguous from 0.
  Round(Generation generation, Instant formed, std::vector<RoundMember> members, RoundTerms terms);

  Generation generation() const { return generation_; }
  Instant formed() const { return formed_; }
  // Moves the time of forming back to `formed`, if that is earlier.
  void FormedBefore(Instant formed) { formed_ = std::min(formed_, formed); }
  uint32_t world_size() const { return world_size_; }
  const std::vector<RoundMember>& members() const { return members_; }
  const RoundMember& member(uint32_t group_rank) const { return members_.at(group_rank); }
  const RoundTerms& terms() const { return terms_; }
  // The member's assignment. Params: redone_to: as in Assignment.
  Assignment AssignmentOf(uint32_t group_rank, uint64_t redone_to) const;
  // The ranks of all members as "a=[0..1] b=[2..3]"; at most kTextBytesMax.
  std::string RanksText() const;

  // The member had succeeded and its node has left, which isn't a loss so far (R8).
  bool IsVacant(uint32_t group_rank) const {
    return member(group_rank).node_order == 0 && !member(group_rank).gone();
  }

  void SetState(uint32_t group_rank, RoundMember::State state);
  // Whether the member has a stream. A member without one keeps the round open until it is back or
  // lost.
  void SetConnected(uint32_t group_rank, bool connected);
  // Ties the member to a node of the table, or to none (0).
  void SetNode(uint32_t group_rank, uint64_t node_order);
  // Returns true for the last member: all workers run now.
  bool SetStarted(uint32_t group_rank);
  void SetSucceeded(uint32_t group_rank, Instant now);
  // Group ranks of members that still run kOthersEndedAfter after the last success of another one;
  // once, and once more if one of several is left. Otherwise empty.
  std::vector<uint32_t> TakeLaggards(Instant now);
  // Adds a failure of a member's worker, or completes the earlier report of the same rank. Rank and
  // generation are set here. Returns false if the member has no such worker. Bound: as FailureList.
  bool AddFailure(uint32_t group_rank, WorkerFailure failure, Instant arrival);

  // Adds workers of a member that had ended with 0 before the round's end. Ignores local ranks that
  // don't exist.
  void AddLeft(uint32_t group_rank, const std::vector<uint32_t>& local_ranks);
  // The ranks of all AddLeft() calls, without those of the node.
  std::vector<uint32_t> LeftBeside(const NodeId& node_id) const;

  // Adds the highest step of a member's workers.
  void AddStep(std::optional<uint64_t> step) { step_ = std::max(step_, step); }

  // Adds how many workers of a member keep their processes.
  void AddKept(uint32_t kept) { any_kept_ = any_kept_ || kept > 0; }

  // Whether any worker keeps its process.
  bool any_kept() const { return any_kept_; }
  // Highest step that a worker marked; nullopt = none marks.
  std::optional<uint64_t> step() const { return step_; }
  // The round waits for no member any more.
  bool settled() const { return open_ == 0; }
  bool any_gone() const { return gone_ > 0; }
  size_t succeeded() const { return succeeded_; }
  bool any_succeeded() const { return succeeded_ > 0; }
  bool all_succeeded() const { return succeeded_ == members_.size(); }
  // Group ranks.
  std::set<uint32_t> NotSucceeded() const;
  const std::vector<ReportedFailure>& failures() const { return failures_.reported(); }

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  void Refresh(RoundMember& member);
  std::string BrokenCounts() const;

  Generation generation_;  // not 0
  Instant formed_;
  std::vector<RoundMember> members_;  // by group rank; never empty
  uint32_t world_size_;               // the sum of the members' workers
  RoundTerms terms_;
  // Counts of members: 0 <= each <= members_.size().
  size_t open_;                                 // that are not settled
  size_t gone_ = 0;                             // never goes down
  size_t started_ = 0;                          // never goes down
  size_t succeeded_ = 0;                        // never goes down
  Instant last_success_ = Instant::Infinite();  // infinite once TakeLaggards has used it
  size_t laggards_ = 0;                         // how many TakeLaggards named last
  FailureList failures_;                        // ranks < world_size_
  std::set<uint32_t> left_;                     // ranks < world_size_
  std::optional<uint64_t> step_;                // never goes down
  bool any_kept_ = false;                       // never goes back
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_ROUND_H_
