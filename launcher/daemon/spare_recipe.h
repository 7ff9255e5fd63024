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

// How to start an interpreter for this job. Variables that differ between any two shells or jobs
// (SHLVL, TMUX, TORCHELASTIC_RUN_ID) count as varying: a module that reads one of them at its
// import isn't imported ahead. Errors: of OwnSetup().
absl::StatusOr<daemon::v1::Recipe> MakeSpareRecipe(const LaunchPlan& plan,
                                                   const EnvironmentLookup& environment);

// The pool key of a recipe: everything except varying variables.
SpareFacts FactsOf(const daemon::v1::Recipe& recipe);

ParkRecipe ParkRecipeOf(const daemon::v1::Recipe& recipe);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_SPARE_RECIPE_H_
