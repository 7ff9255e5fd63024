#ifndef DDPRUN_LAUNCHER_WARM_PARK_RECIPE_H_
#define DDPRUN_LAUNCHER_WARM_PARK_RECIPE_H_

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

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_PARK_RECIPE_H_
