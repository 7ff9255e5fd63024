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

// How an interpreter is parked for the workers of a job.
struct ParkRecipe {
  std::vector<std::string> argv;
  std::vector<std::string> environment;    // "NAME=value", over what it inherits; no PYTHONPATH
  std::vector<std::string> varying;        // names that differ between workers: it has none of them
  std::optional<std::string> python_path;  // PYTHONPATH of the workers; none: they have none
  std::vector<std::string> preload;
};
// `complete`: adds to the environment what this job's workers have besides; null = nothing.
ParkRecipe MakeParkRecipe(
    const LaunchPlan& plan, const EnvironmentLookup& environment,
    const std::function<void(std::vector<std::string>* environment)>& complete = nullptr);

// Writes what such an interpreter starts with besides, to `folder`/hook. Errors: of the files.
absl::Status WriteParkHook(const std::string& folder);

// What the keeper is asked for; what is to be imported is written to `folder`/`list`. `idle`:
// imports take only processor time that nobody wants. Errors: of the file.
absl::StatusOr<ParkRequest> PreparePark(const ParkRecipe& recipe, const Learned& learned,
                                        const std::string& folder, absl::string_view list,
                                        bool idle);

// The last variable of a process that is parked: what its workers have besides takes its place.
std::string RoomVariable();

// What was kept of earlier jobs in this file; none = nothing that can be used.
std::optional<Learned> ReadKeptFile(const std::string& path);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_PARK_RECIPE_H_
