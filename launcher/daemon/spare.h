#ifndef DDPRUN_LAUNCHER_DAEMON_SPARE_H_
#define DDPRUN_LAUNCHER_DAEMON_SPARE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "ddprun/daemon/v1/daemon.pb.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/daemon/core/spare_shelf.h"
#include "launcher/keeper/keeper_client.h"
#include "launcher/warm/core/warm_starter.h"
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

// One interpreter of the pool with its keeper and warden, from its start until a job gets it. The
// destructor ends all three.
// Threads: the loop's.
class Spare {
 public:
  struct Hooks {
    std::function<void(uint64_t bytes)> ready;
    std::function<void(std::string why)> gone;  // no hook is called after this
  };

  // `folder`: has the hook (WriteParkHook()). `list`: the name of this interpreter's list in it.
  Spare(EventLoop* loop, daemon::v1::Recipe recipe, std::string folder, std::string list,
        Hooks hooks);
  ~Spare();

  // Errors: NOT_FOUND — nothing was learned that could be imported; of fork(2), exec(2).
  absl::Status Start();

  struct Leased {
    KeeperProcess keeper;
    std::string ready;  // the interpreter's "ready …" text
  };
  // Gives the keeper away. Requires: hooks.ready was called.
  Leased Release();

 private:
  absl::Status StartWarden();
  void OnWarden();
  void OnSaid(const std::string& text);
  void OnEnded(const std::string& how);
  void Do(const std::vector<WarmEffect>& effects);
  void Do(const struct Park& effect);
  void Do(const struct Unpark& effect);
  void Do(const Keep& effect);
  void Do(const Forget& effect);
  void Do(const WarmNote& /*effect*/) {}
  void Do(const NotifyOnce& /*effect*/) {}
  void LookAtStarter();
  void Leave(std::string why);

  EventLoop* loop_;
  const daemon::v1::Recipe recipe_;
  const std::string folder_;
  const std::string list_;
  const Hooks hooks_;
  WarmStarter starter_;
  Fd warden_;
  std::unique_ptr<FdWatch> watch_;
  std::unique_ptr<KeeperClient> keeper_;
  std::string ready_;
  bool told_ = false;  // a hook was called
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_SPARE_H_
