#ifndef DDPRUN_LAUNCHER_DAEMON_DAEMON_COMMAND_H_
#define DDPRUN_LAUNCHER_DAEMON_DAEMON_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/argument.h"

namespace ddprun::launcher {

// `ddprun daemon`.
struct DaemonOptions {
  enum class What { kServe, kStatus, kStop };
  What what = What::kServe;
  std::string folder;                            // "" = no folder is possible
  WarmPlan memory;                               // memory_bytes or memory_percent
  absl::Duration idle_timeout = absl::Hours(1);  // zero = never
};

// Errors: usage and plan errors (argument.h).
absl::StatusOr<OptionsOrHelp<DaemonOptions>> ParseDaemonOptions(
    const std::vector<std::string>& arguments, const EnvironmentLookup& environment);

// Runs the command. Returns: the exit status.
int RunDaemonCommand(const DaemonOptions& options);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_DAEMON_COMMAND_H_
