#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_CLOSING_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_CLOSING_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/failures/first_cause.h"
#include "rendezvous/core/failures/restart_policy.h"
#include "rendezvous/core/generation/round.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/job_spec.h"

namespace ddprun::rendezvous {

// What ends the live generation.
struct Trigger {
  std::string reason;  // for people
  std::string name;    // for programs: "worker_failed"; docs/event_log.schema.json has all
  // Earliest time of a fault that was unknown until now; nullopt = nothing went wrong.
  std::optional<Instant> fault = std::nullopt;
  bool for_growth = false;
};

// What the end of a generation costs, and what follows from it.
struct Settlement {
  RestartDecision decision;
  std::string why;               // the cause, for people
  std::optional<NodeId> blamed;  // the node on which the failure began (R2)
  std::string blamed_host;       // its host name
};

// How the live generation ends, and what those before it have cost (R7). Pure.
//
//   Open ─Begin─► (members stop; some are lost) ─Settle─► Open …
class Closing {
 public:
  // A generation has its ranks.
  void Open();
  // The generation is to end. Called once: the first trigger counts. Params: uptime: since the
  // assignment.
  void Begin(Instant now, const Trigger& trigger, absl::Duration uptime);
  // A member is lost or has left, before or after Begin. The first call's reason counts.
  void NoteLoss(const std::string& reason);
  // All members have answered. Params: jitter: 0 to 1, see RoundEnd; newcomers_gone: how many of
  // the nodes that a growth was for have gone; ignored unless the trigger was growth. Requires:
  // Begin.
  Settlement Settle(const JobSpec& spec, const Round& round, double jitter,
                    uint32_t newcomers_gone);

  // For the job's record, and back from it; nullopt = nothing ends the live generation.
  std::optional<ClosingRecord> ToRecord(Instant now) const;
  void Recover(Instant now, const RestartHistory& history,
               const std::optional<ClosingRecord>& record);

  // The time of the trigger. Requires: Begin.
  Instant began() const { return began_; }
  // The trigger's reason, for people.
  const std::string& reason() const { return reason_; }
  const RestartHistory& history() const { return history_; }
  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant() const;

 private:
  bool begun_ = false;  // between Begin and the next Open
  Instant began_;
  std::string reason_;       // of the trigger
  bool for_growth_ = false;  // the trigger was growth; only with begun_
  absl::Duration uptime_;    // from the assignment to the trigger; >= 0
  std::string loss_;         // the first loss; "" = none
  // restarts_charged <= restart_count <= all generations; neither goes down but for charges that
  // are given back.
  RestartHistory history_;
};

// A settlement's `why`, followed by the decision's `why` if there is one: "… (restart 1 of 3)".
std::string WithDecision(const Settlement& settlement);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_CLOSING_H_
