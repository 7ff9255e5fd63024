#ifndef DDPRUN_LAUNCHER_PLAN_WORKER_COMMAND_H_
#define DDPRUN_LAUNCHER_PLAN_WORKER_COMMAND_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/options/host.h"
#include "launcher/plan/launch_arguments.h"

namespace ddprun::launcher {

struct WorkerCommand {
  enum class Kind { kScript, kModule, kProgram };

  Kind kind = Kind::kScript;
  std::vector<std::string> argv;  // {python, "-u", "-m", script, …} or {program, …}
  std::string entry_point;        // script, module or program as given
};

// The end of the error for a missing script, unless there is better advice.
inline constexpr absl::string_view kPathAdvice = "; give its path, from this folder or from /";

// The command that each worker runs. Scripts and programs are checked before anything starts;
// modules are found by Python. Errors: usage — no script; plan — it can't be read or run, with
// errno, or there is no Python.
absl::StatusOr<WorkerCommand> MakeWorkerCommand(const LaunchArguments& arguments,
                                                const EnvironmentLookup& environment,
                                                const Host& host);

// The interpreter of scripts: $PYTHON_EXEC; else that of the virtual environment with this ddprun,
// or if that has no torch, of the active environment ($VIRTUAL_ENV, $CONDA_PREFIX); else the path
// of python3 or python. Errors: plan — there is none, or PYTHON_EXEC can't be run.
absl::StatusOr<std::string> FindPython(const EnvironmentLookup& environment, const Host& host);

// Fills `plan` with the command, the fingerprint and the description of the job. Requires: the
// plan's run id and sizes.
//
// By the fingerprint the service refuses nodes of another job at the same endpoint (R6). It covers
// what all nodes of one job share: run id, sizes, restarts, the kind of command and the file name
// of its script, and the protocol. It doesn't cover the script's folder, its arguments, the
// interpreter and the number of workers, because these may differ between nodes (home directories,
// --data paths, 4 and 8 GPUs): to refuse a good job would be worse than to accept a wrong one with
// the same names.
void PlanCommand(const LaunchArguments& arguments, WorkerCommand command, LaunchPlan* plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_PLAN_WORKER_COMMAND_H_
