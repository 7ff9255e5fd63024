#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_GATE_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_GATE_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/instant.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/members/roster.h"
#include "rendezvous/core/timing.h"
#include "rendezvous/core/views.h"

namespace ddprun::rendezvous {

// The machines that were asked to leave, and may not join again until the drain is undone (R15).
// Pure.
//
// A drained node leaves as a preempted one does, but its machine must stay away, because a
// supervisor restarts an agent that has ended at once. A drained machine isn't kept as a spare,
// because spares hold GPUs that an operator wants to work on.
class DrainList {
 public:
  // Adds a machine. Bound: the last kDrainedMax; after that the oldest one may join again.
  void Add(DrainedNode node);
  // Lets the node's machines join again. Returns false if none was drained.
  bool Undo(const NodeId& node);

  // The node's latest entry; null = it wasn't drained. Valid until the next change.
  const DrainedNode* Find(const NodeId& node) const;
  // Errors: ABORTED: an agent of a drained machine; the text says how to let it in. The address
  // distinguishes machines that have the same name one after the other, as pods do.
  absl::Status CheckMachine(const std::string& hostname, const std::string& address) const;

  // The latest entry last.
  const std::vector<DrainedNode>& nodes() const { return nodes_; }
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  std::vector<DrainedNode> nodes_;  // latest last; at most kDrainedMax, and each has a name
};

// The answer to a Join.
struct JoinDecision {
  enum class Kind {
    kRefuse,    // end its stream with `refusal`
    kReattach,  // the node `known` has a newer stream
    kAdd,       // a new node; `known`, if set, counts as lost
  };
  Kind kind = Kind::kRefuse;
  absl::Status refusal;
  const Node* known = nullptr;
};

// Admission to a job: its spec, and the checks of each Join and message (R1, R2, R6, R9). Pure.
class Gate {
 public:
  // Requires: a term. Params: token: the job's secret; "" = agents without a token may join.
  Gate(Term term, std::string token);

  // Checks a Join in the order of R6. Params: unformed: the job lives and has had no generation.
  JoinDecision Decide(Instant now, const AgentMessage& message, const Join& join,
                      const Roster& roster, const DrainList& drains, bool unformed,
                      const ProbePace& pace) const;
  // The checks of Decide() that don't involve other nodes; also for a job that has ended.
  absl::Status CheckJoin(const AgentMessage& message, const Join& join, const Roster& roster,
                         const DrainList& drains, bool unformed) const;
  // Whether an agent was part of the job that has ended, and so gets its verdict.
  static bool MayHearVerdict(const AgentMessage& message, const Roster& roster);
  // Errors: ABORTED: another term. INVALID_ARGUMENT: run id, node or incarnation differ from those
  // of the stream's Join.
  absl::Status CheckMessage(const Node& node, const AgentMessage& message) const;

  // The Join is accepted. Returns true if its spec is the job's from now on.
  bool Admit(const Join& join, const Roster& roster, bool unformed);

  // Resumes the job of another service. Params: spec: the job's; nullopt = no node had joined.
  void Recover(const std::optional<JobSpec>& spec);

  Term term() const { return term_; }
  // A node has joined; never false again.
  bool open() const { return open_; }
  // The spec of the first Join; defaults before.
  const JobSpec& spec() const { return spec_; }

 private:
  bool TakesNewSpec(const Roster& roster, bool unformed) const;

  const Term term_;  // not 0
  const std::string token_;
  bool recovered_ = false;  // the term is that of a former service
  bool open_ = false;
  JobSpec spec_;  // 1 <= nodes_min <= nodes_max
};

// The refusal of a Join that claims the node rank of `holder`. Params: is_back: the holder was
// silent before.
absl::Status ClaimIsHeld(const Node& holder, bool is_back);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_GATE_H_
