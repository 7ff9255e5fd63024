#ifndef DDPRUN_LAUNCHER_PLAN_HANG_OPTIONS_H_
#define DDPRUN_LAUNCHER_PLAN_HANG_OPTIONS_H_

#include "absl/status/status.h"
#include "launcher/core/launch_plan.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

class OptionSet;

// The options about workers that hang or are stopped, with their help.
void DefineHangOptions(LaunchArguments* target, OptionSet* options);

// Fills `plan` from these options. Errors: INVALID_ARGUMENT — a value; the text names the option.
absl::Status PlanHangs(const LaunchArguments& arguments, LaunchPlan* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_HANG_OPTIONS_H_
