#ifndef DDPRUN_LAUNCHER_CLI_GUARD_OPTIONS_H_
#define DDPRUN_LAUNCHER_CLI_GUARD_OPTIONS_H_

#include "absl/status/status.h"
#include "launcher/cli/launch_arguments.h"
#include "launcher/core/launch_plan.h"

namespace ddprun::launcher {

class OptionSet;

// The options about what ended workers may leave behind, with their help.
void DefineGuardOptions(LaunchArguments* target, OptionSet* options);

// What they come to. Errors: INVALID_ARGUMENT — a value; the text names the option.
absl::Status PlanGuards(const LaunchArguments& arguments, LaunchPlan* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CLI_GUARD_OPTIONS_H_
