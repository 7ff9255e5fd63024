#ifndef DDPRUN_RENDEZVOUS_CORE_VERDICT_H_
#define DDPRUN_RENDEZVOUS_CORE_VERDICT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::rendezvous {

// The rule by which a generation begins, a node is left out or the job ends. Every decision carries
// one, and its name is shown wherever the decision is: event log, console, verdict, report.
// docs/RECOVERY.md has all of them in words. A job's record names rules, and a release refuses a
// record with a rule that it doesn't know: with a new rule, `kFormat` of the journal grows.
enum class Rule {
  // A generation begins.
  kAllNodes,          // first formation: nodes_max are here (R3)
  kLastCall,          // first formation: nodes_min are here and the last call is over (R3)
  kWorkerFailure,     // a failure was charged as a restart (R7)
  kBackoff,           // the same, after a pause: quick failures in a row (R7)
  kSurvivors,         // a worker was killed from outside, and others go on (R7)
  kMembershipChange,  // a node was lost or left (R7)
  kGrowth,            // newcomers are taken in (R3)
  kQuarantine,        // a node is left out (R2)
  // The job ends.
  kAllSucceeded,     // (R8)
  kRestartsSpent,    // max_restarts (R7)
  kMembershipSpent,  // max_membership_changes (R7)
  kCrashLoop,        // starts in a row failed alike (R7)
  kNoProgress,       // generations in a row failed without progress (R7)
  kJoinTimeout,      // too few nodes (R3)
  kPreflight,        // a worker examined the network, and no run can work with it (R7)
  kStopped,          // a signal or a control call (R8)
  kPreempted,        // a preempting signal (R8)
};
inline constexpr Rule kLastRule = Rule::kPreempted;

// The rule's name, which stays the same over releases: "worker_failure", "crash_loop".
std::string RuleName(Rule rule);
// The rule called `name`; nullopt = there is none.
std::optional<Rule> RuleOf(absl::string_view name);

// How a job ended; docs/SIGNALS.md has the exit statuses.
enum class Outcome {
  kSucceeded,
  kFailed,         // it may be started again
  kFailedForGood,  // starting it again won't help
  kStopped,        // on request
  kPreempted,      // its machines were taken away: start it again
};

// The end of a job, as the service reports it to all agents.
struct Verdict {
  Outcome outcome = Outcome::kFailed;
  std::string reason;
  std::vector<WorkerFailure> failures;  // first causes first
  uint32_t first_causes = 0;            // how many of them tie; 0 = there is none
  Generation generation;
  uint32_t restart_count = 0;
  std::string rule;                // name of the rule that decided the verdict (verdict.h)
  uint32_t failures_left_out = 0;  // failures that a verdict to many nodes lacks (R8)
  uint32_t causes_left_out = 0;    // those of them that tie for the first cause
  std::string whole_on;  // host of the agent that has the whole of a cut verdict; "" = none

  friend bool operator==(const Verdict&, const Verdict&) = default;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_VERDICT_H_
