#ifndef DDPRUN_RENDEZVOUS_CORE_POLICY_RULE_H_
#define DDPRUN_RENDEZVOUS_CORE_POLICY_RULE_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// The rule by which a generation begins, a node is left out or the job ends. Every decision carries
// one, and its name is shown wherever the decision is: event log, console, verdict, report.
// docs/RECOVERY.md has all of them in words.
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

// The rule's name, which stays the same over releases: "worker_failure", "crash_loop".
std::string RuleName(Rule rule);
// The rule called `name`; nullopt = there is none.
std::optional<Rule> RuleOf(absl::string_view name);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_POLICY_RULE_H_
