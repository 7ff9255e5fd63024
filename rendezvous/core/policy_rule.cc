#include "rendezvous/core/policy_rule.h"

namespace ddprun::rendezvous {

std::string RuleName(Rule rule) {
  switch (rule) {
    case Rule::kAllNodes:
      return "all_nodes";
    case Rule::kLastCall:
      return "last_call";
    case Rule::kWorkerFailure:
      return "worker_failure";
    case Rule::kBackoff:
      return "backoff";
    case Rule::kMembershipChange:
      return "membership_change";
    case Rule::kGrowth:
      return "growth";
    case Rule::kQuarantine:
      return "quarantine";
    case Rule::kAllSucceeded:
      return "all_succeeded";
    case Rule::kRestartsSpent:
      return "restarts_spent";
    case Rule::kMembershipSpent:
      return "membership_spent";
    case Rule::kCrashLoop:
      return "crash_loop";
    case Rule::kNoProgress:
      return "no_progress";
    case Rule::kJoinTimeout:
      return "join_timeout";
    case Rule::kPreflight:
      return "preflight";
    case Rule::kStopped:
      return "stopped";
    case Rule::kPreempted:
      return "preempted";
    case Rule::kNotRecorded:
      return "not_recorded";
  }
  return "unknown";
}

}  // namespace ddprun::rendezvous
