#ifndef DDPRUN_TOOLS_CHAOS_CHAOS_COMMAND_H_
#define DDPRUN_TOOLS_CHAOS_CHAOS_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/host.h"
#include "launcher/options/options_or_help.h"
#include "tools/chaos/core/chaos_plan.h"

namespace ddprun::launcher {

// `ddprun chaos`: runs a job with the faults of a plan, and reports what they cost.
struct ChaosOptions {
  std::string plan_file;
  ChaosPlan plan;
  std::string report_file;             // --chaos_report: path of the report as JSON; "" = none
  bool check = false;                  // --check: run nothing
  std::vector<std::string> from_logs;  // --from_logs: make the report from these; run nothing
  std::vector<std::string> job;        // the arguments after the plan: those of an ordinary ddprun
  LaunchPlan launch;                   // their plan; only with a job
};

// Reads `ddprun chaos`'s own options and the plan, but not the arguments after the plan.
// Params: arguments — after the command's own name.
// Errors: usage and plan errors (errors.h), mistakes of the plan with file and line.
absl::StatusOr<OptionsOrHelp<ChaosOptions>> ParseChaosOptions(
    const std::vector<std::string>& arguments, const Host& host);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_CHAOS_COMMAND_H_
