#ifndef DDPRUN_LAUNCHER_PLAN_WARM_OPTIONS_H_
#define DDPRUN_LAUNCHER_PLAN_WARM_OPTIONS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

class OptionSet;

// The options about how workers start, with their help.
void DefineWarmOptions(LaunchArguments* target, OptionSet* options);

// Reads "5%", or "2GiB", "512MiB", "1048576" into memory_percent or memory_bytes. Returns false for
// other texts.
bool ReadMemory(absl::string_view text, WarmPlan* plan);

// Fills `plan` from these options. Errors: INVALID_ARGUMENT — a value; the text names the option.
// Requires: plan->argv, plan->entry_point.
absl::Status PlanWarm(const LaunchArguments& arguments, const EnvironmentLookup& environment,
                      LaunchPlan* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_WARM_OPTIONS_H_
