#include "rendezvous/core/verdict.h"

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
    case Rule::kSurvivors:
      return "survivors";
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
  }
  return "unknown";
}

std::optional<Rule> RuleOf(absl::string_view name) {
  for (int i = 0; i <= static_cast<int>(kLastRule); ++i) {
    if (RuleName(static_cast<Rule>(i)) == name) return static_cast<Rule>(i);
  }
  return std::nullopt;
}

}  // namespace ddprun::rendezvous
