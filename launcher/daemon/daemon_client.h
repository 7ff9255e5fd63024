#ifndef DDPRUN_LAUNCHER_DAEMON_DAEMON_CLIENT_H_
#define DDPRUN_LAUNCHER_DAEMON_DAEMON_CLIENT_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "launcher/core/environment.h"
#include "launcher/core/launch_plan.h"
#include "launcher/keeper/keeper.h"

namespace ddprun::daemon::v1 {
class Shelf;
}  // namespace ddprun::daemon::v1

namespace ddprun::launcher {

// What came of asking this user's daemon for an interpreter.
struct DaemonVisit {
  bool is_there = false;  // a daemon has answered
  std::optional<KeeperProcess> keeper;
  std::string ready;   // what its interpreter has said
  std::string why;     // "" = there is no daemon, or it gave a keeper
  bool tells = false;  // the user wants to know why
  Fd connection;       // for NotifySettled(); until it ends, no next interpreter is parked
};

// Asks for a keeper whose interpreter has imported what this job's workers import, and adopts it
// with these options. Waits 1 s at most for each of both; whatever fails, the job starts as without
// a daemon. Requires: as ForkKeeper().
DaemonVisit VisitDaemon(const LaunchPlan& plan, const EnvironmentLookup& environment,
                        const KeeperOptions& options);

// Tells the daemon that the job no longer needs the machine for its start.
void NotifySettled(const Fd& connection);

// Asks the daemon what it has (Look), or to end (Stop).
// Errors: as ConnectToDaemon(); DEADLINE_EXCEEDED; FAILED_PRECONDITION — another ddprun.
absl::StatusOr<daemon::v1::Shelf> AskForShelf(const std::string& folder, bool stop);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_DAEMON_CLIENT_H_
