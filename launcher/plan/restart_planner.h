#ifndef DDPRUN_LAUNCHER_PLAN_RESTART_PLANNER_H_
#define DDPRUN_LAUNCHER_PLAN_RESTART_PLANNER_H_

#include "absl/status/status.h"
#include "launcher/plan/launch_arguments.h"
#include "rendezvous/core/job_spec.h"

namespace ddprun::launcher {

// Reads the options of "Restarts" into `job`: max_restarts and the restart rules.
// Errors: usage — not a number or duration; plan — out of range. Pure; threads: any.
absl::Status PlanRestarts(const LaunchArguments& arguments, rendezvous::JobSpec* job);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_RESTART_PLANNER_H_
