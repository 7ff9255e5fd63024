#include "launcher/plan/restart_planner.h"

#include <cstdint>
#include <limits>

#include "base/status_macros.h"
#include "launcher/options/values.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

constexpr int64_t kCountMax = std::numeric_limits<int32_t>::max();

absl::Status ReadCount(const Argument& argument, int64_t most, uint32_t* count) {
  DDPRUN_ASSIGN_OR_RETURN(const int64_t value, ParseInteger(argument, 0, most));
  *count = static_cast<uint32_t>(value);
  return absl::OkStatus();
}

}  // namespace

absl::Status PlanRestarts(const LaunchArguments& arguments, rendezvous::JobSpec* job) {
  rendezvous::RestartRules& rules = job->restart;
  DDPRUN_RETURN_IF_ERROR(ReadCount(arguments.max_restarts, kCountMax, &job->max_restarts));
  job->survivors_restart = !arguments.max_restarts.given();
  if (arguments.membership_changes.given()) {
    DDPRUN_RETURN_IF_ERROR(
        ReadCount(arguments.membership_changes, kCountMax, &rules.max_membership_changes));
  }
  DDPRUN_RETURN_IF_ERROR(ReadCount(arguments.crash_loop, kCountMax, &rules.crash_loop));
  DDPRUN_RETURN_IF_ERROR(ReadCount(arguments.give_up_after, kCountMax, &rules.give_up_after));
  DDPRUN_RETURN_IF_ERROR(
      ReadCount(arguments.quarantine_after, rendezvous::kBlameMax, &rules.quarantine_after));
  rules.quarantine_shrinks = arguments.quarantine_after.given();
  DDPRUN_ASSIGN_OR_RETURN(rules.restart_window,
                          ParseDuration(arguments.restart_window, absl::ZeroDuration()));
  DDPRUN_ASSIGN_OR_RETURN(rules.backoff_max,
                          ParseDuration(arguments.restart_backoff, absl::ZeroDuration()));
  DDPRUN_ASSIGN_OR_RETURN(rules.quarantine_time,
                          ParseDuration(arguments.quarantine_time, absl::Milliseconds(1)));
  return absl::OkStatus();
}

}  // namespace ddprun::launcher
