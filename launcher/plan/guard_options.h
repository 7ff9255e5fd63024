#ifndef DDPRUN_LAUNCHER_PLAN_GUARD_OPTIONS_H_
#define DDPRUN_LAUNCHER_PLAN_GUARD_OPTIONS_H_

#include "absl/status/status.h"
#include "launcher/core/launch_plan.h"
#include "launcher/plan/launch_arguments.h"
#include "rendezvous/core/job_spec.h"

namespace ddprun::launcher {

class OptionSet;

// The options about what ended workers may leave behind, with their help.
void DefineGuardOptions(LaunchArguments* target, OptionSet* options);

// Fills `plan` from these options. Errors: INVALID_ARGUMENT — a value; the text names the option.
absl::Status PlanGuards(const LaunchArguments& arguments, LaunchPlan* plan);

// Reads the options of "Restarts" into `job`: max_restarts and the restart rules.
// Errors: usage — not a number or duration; plan — out of range. Pure; threads: any.
absl::Status PlanRestarts(const LaunchArguments& arguments, rendezvous::JobSpec* job);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_GUARD_OPTIONS_H_
