#ifndef DDPRUN_LAUNCHER_WARM_PARK_RECIPE_H_
#define DDPRUN_LAUNCHER_WARM_PARK_RECIPE_H_

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/keeper/keeper_client.h"
#include "launcher/warm/core/learned.h"

namespace ddprun::launcher {

// sitecustomize.py of workers that learn and of parked interpreters (launcher/warm/bootstrap.py).
extern const char kWarmBootstrap[];
// parked.py, which the latter execute from the same folder (launcher/warm/parked.py).
extern const char kWarmParked[];

// How an interpreter that the workers of a job are forked from is started.
struct ParkRecipe {
  std::vector<std::string> argv;
  std::vector<std::string> environment;    // "NAME=value", over what it inherits; no PYTHONPATH
  std::vector<std::string> varying;        // variables that differ between workers; left out
  std::optional<std::string> python_path;  // PYTHONPATH of the workers; nullopt = unset
  std::vector<std::string> preload;
};
// `complete`: adds variables that this job's workers have besides; null = none.
ParkRecipe MakeParkRecipe(
    const LaunchPlan& plan, const EnvironmentLookup& environment,
    const std::function<void(std::vector<std::string>* environment)>& complete = nullptr);

// Writes the hook (sitecustomize) of such an interpreter to `folder`/hook. Errors: of the files.
absl::Status WriteParkHook(const std::string& folder);

// The keeper's request to start the interpreter. Writes the list of imports to `folder`/`list`.
// Params: idle: import at idle priority. Errors: of the file.
absl::StatusOr<ParkRequest> PreparePark(const ParkRecipe& recipe, const Learned& learned,
                                        const std::string& folder, absl::string_view list,
                                        bool idle);

// The last variable of a fork server's environment. A forked worker overwrites it with variables of
// its own.
std::string RoomVariable();

// What earlier jobs have kept in this file; nullopt = nothing usable.
std::optional<Learned> ReadKeptFile(const std::string& path);

// A program with the C++ runtime becomes a fork server by itself (worker/env/parked_program.h).
// These functions are about the program that a plan's workers run.

// The program's file, as exec(2) would find it; "" = there is none.
std::string ProgramFile(const LaunchPlan& plan, const EnvironmentLookup& environment);

// The version of the file, equal on all nodes that share the file; "" = not known.
std::string ProgramSignature(const std::string& file);

// Whether the process runs this very file, not a program that a script or a wrapper has executed.
bool Runs(pid_t pid, const std::string& file);

// The keeper's request to start the program as a fork server.
ParkRequest PrepareParkedProgram(const LaunchPlan& plan, const EnvironmentLookup& environment);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_PARK_RECIPE_H_
