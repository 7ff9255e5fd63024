#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERS_GATE_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERS_GATE_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "base/instant.h"
#include "rendezvous/core/members/drain_list.h"
#include "rendezvous/core/members/roster.h"
#include "rendezvous/core/message.h"
#include "rendezvous/core/timing.h"
#include "rendezvous/core/types.h"

namespace ddprun::rendezvous {

// What becomes of a Join.
struct JoinDecision {
  enum class Kind {
    kRefuse,    // its stream ends with `refusal`
    kReattach,  // it is `known`, with a newer stream
    kAdd,       // a new node. `known`, if there is one, counts as lost
  };
  Kind kind = Kind::kRefuse;
  absl::Status refusal;
  const Node* known = nullptr;
};

// What this job is, and who may take part in it (R1, R2, R6, R9). Pure.
class Gate {
 public:
  // Requires: a term. Params: token: "" = everyone without one may.
  Gate(Term term, std::string token);

  // Checks a Join in the order of R6. Params: unformed: the job lives, and had no generation yet.
  JoinDecision Decide(Instant now, const AgentMessage& message, const Join& join,
                      const Roster& roster, const DrainList& drains, bool unformed,
                      const ProbePace& pace) const;
  // All of that but the other nodes: also for a job that has ended.
  absl::Status CheckJoin(const AgentMessage& message, const Join& join, const Roster& roster,
                         const DrainList& drains, bool unformed) const;
  // After the end: it was part of the job, and may hear the verdict.
  static bool MayHearVerdict(const AgentMessage& message, const Roster& roster);
  // Errors: ABORTED — another term; INVALID_ARGUMENT — not what the stream's Join was.
  absl::Status CheckMessage(const Node& node, const AgentMessage& message) const;

  // This Join is taken. True: its spec is the job's from now on.
  bool Admit(const Join& join, const Roster& roster, bool unformed);

  // The job goes on that another service had: this is its spec, if somebody had joined.
  void Recover(const std::optional<JobSpec>& spec);

  Term term() const { return term_; }
  // Somebody has joined; for good.
  bool open() const { return open_; }
  // The job's; that of the first Join. Defaults before.
  const JobSpec& spec() const { return spec_; }

 private:
  bool TakesNewSpec(const Roster& roster, bool unformed) const;

  const Term term_;  // not 0
  const std::string token_;
  bool recovered_ = false;  // agents know the term from another service
  bool open_ = false;
  JobSpec spec_;  // 1 <= nodes_min <= nodes_max
};

// What those hear that claim the node rank of `holder`. Params: is_back: it was silent before.
absl::Status ClaimIsHeld(const Node& holder, bool is_back);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERS_GATE_H_
