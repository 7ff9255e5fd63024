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
#include "rendezvous/core/message.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// One node of the live generation.
struct RoundMember {
  // Assigned (or being so) → asked to stop → its process tree is empty; or gone.
  enum class State { kRunning, kStopping, kStopped, kLost, kLeft };

  uint64_t node_order = 0;  // in the node table; 0 = it is there no more
  NodeId node_id;
  uint32_t worker_count = 0;
  Placement placement;
  State state = State::kRunning;
  bool connected = true;
  bool started = false;    // all its workers were started
  bool succeeded = false;  // all its workers ended with 0
  bool settled = false;    // nothing more is awaited from it

  bool gone() const { return state == State::kLost || state == State::kLeft; }
};

// What all members of a generation are told of it beside their ranks.
struct RoundTerms {
  std::string master_addr;    // of the workers' store (R11)
  uint32_t master_port = 0;   // 0 = it could not be reserved
  std::string store_address;  // of rank 0's agent
  std::string reason;         // why it began
  std::string rule;           // the name of the rule by which it did
  uint32_t restart_count = 0;
  uint32_t restarts_charged = 0;
};

// The live generation, from its assignment until every member has answered that its workers are
// gone, or is gone itself (R3). Keeps the counts that decide this, so that a message costs O(1).
// Members are named by group rank.
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
  // What the member is told. Params: redone_to: as in Assignment.
  Assignment AssignmentOf(uint32_t group_rank, uint64_t redone_to) const;
  // Its ranks as "a=[0..1] b=[2..3]"; at most kTextBytesMax.
  std::string RanksText() const;

  // Its node, which was done, has gone, and is not missed yet.
  bool IsVacant(uint32_t group_rank) const {
    return member(group_rank).node_order == 0 && !member(group_rank).gone();
  }

  void SetState(uint32_t group_rank, RoundMember::State state);
  // Whether the member has a stream; one without keeps the round open until it is back or lost.
  void SetConnected(uint32_t group_rank, bool connected);
  // Ties the member to a node of the table, or to none (0).
  void SetNode(uint32_t group_rank, uint64_t node_order);
  // True when it was the last one: all workers run.
  bool SetStarted(uint32_t group_rank);
  void SetSucceeded(uint32_t group_rank, Instant now);
  // Group ranks of members that run although others succeeded, the last of them kOthersEndedAfter
  // ago; once, and once more if one member alone is left of several. Empty otherwise.
  std::vector<uint32_t> TakeLaggards(Instant now);
  // Notes a failure of a member's worker, or completes the one of the same rank; it gets its rank
  // and generation here, whatever it says. False: there is no such worker. Bound: as FailureList.
  bool AddFailure(uint32_t group_rank, WorkerFailure failure, Instant arrival);

  // Notes workers of a member that had ended with 0 before the round's end. Those that don't exist
  // are ignored.
  void AddLeft(uint32_t group_rank, const std::vector<uint32_t>& local_ranks);
  // The ranks that are known to have ended so, but those of that node.
  std::vector<uint32_t> LeftBeside(const NodeId& node_id) const;

  // Notes how far a member's workers were.
  void AddStep(std::optional<uint64_t> step) { step_ = std::max(step_, step); }

  // Notes how many of a member's workers go on in their processes.
  void AddKept(uint32_t kept) { any_kept_ = any_kept_ || kept > 0; }

  // Some of its workers go on in their processes.
  bool any_kept() const { return any_kept_; }
  // Highest step that one of its workers marked; nullopt = none marks.
  std::optional<uint64_t> step() const { return step_; }
  // Nothing more is awaited from any member.
  bool settled() const { return open_ == 0; }
  bool any_gone() const { return gone_ > 0; }
  size_t succeeded() const { return succeeded_; }
  bool any_succeeded() const { return succeeded_ > 0; }
  bool all_succeeded() const { return succeeded_ == members_.size(); }
  // Group ranks.
  std::set<uint32_t> NotSucceeded() const;
  const std::vector<ReportedFailure>& failures() const { return failures_.reported(); }

  // What is wrong with it; "" = nothing.
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
