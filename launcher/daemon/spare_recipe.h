#ifndef DDPRUN_LAUNCHER_DAEMON_SPARE_RECIPE_H_
#define DDPRUN_LAUNCHER_DAEMON_SPARE_RECIPE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ddprun/daemon/v1/daemon.pb.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/daemon/core/spare_shelf.h"
#include "launcher/warm/park_recipe.h"

namespace ddprun::launcher {

// What this job's interpreter is parked with. Variables that differ between any two shells or jobs
// (SHLVL, TMUX, TORCHELASTIC_RUN_ID) count as varying: no module that reads one of them while it is
// imported is imported ahead. Errors: of OwnSetup().
absl::StatusOr<daemon::v1::Recipe> MakeSpareRecipe(const LaunchPlan& plan,
                                                   const EnvironmentLookup& environment);

// In what recipes must be the same: everything but what varies.
SpareFacts FactsOf(const daemon::v1::Recipe& recipe);

ParkRecipe ParkRecipeOf(const daemon::v1::Recipe& recipe);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_SPARE_RECIPE_H_
