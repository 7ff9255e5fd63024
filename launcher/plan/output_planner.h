#ifndef DDPRUN_LAUNCHER_PLAN_OUTPUT_PLANNER_H_
#define DDPRUN_LAUNCHER_PLAN_OUTPUT_PLANNER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/host.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

// Fills the fields of `plan` for logs, the console, events and the report. Requires:
// plan->worker_count. Errors: plan errors. `warnings` gets lines for the user.
absl::Status PlanOutput(const LaunchArguments& arguments, const Host& host, LaunchPlan* plan,
                        std::vector<std::string>* warnings);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_OUTPUT_PLANNER_H_
