#ifndef DDPRUN_LAUNCHER_KEEPER_ADOPTION_H_
#define DDPRUN_LAUNCHER_KEEPER_ADOPTION_H_

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "launcher/keeper/keeper.h"

namespace ddprun::launcher {

// Makes a keeper that was forked ahead this process's: with its environment, streams and cgroup, as
// if ForkKeeper(options) had just been called. Waits for that at most so long.
// Errors: what the keeper could not do, or that it doesn't answer; it must be dropped then.
absl::Status AdoptKeeper(const KeeperOptions& options, absl::Duration limit, KeeperProcess* keeper);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_ADOPTION_H_
