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

// The result of asking this user's daemon for an interpreter.
struct DaemonVisit {
  bool is_there = false;  // a daemon has answered
  std::optional<KeeperProcess> keeper;
  std::string ready;   // the interpreter's "ready …" text
  std::string why;     // why there is no keeper; "" = there is no daemon, or it gave one
  bool tells = false;  // print `why`
  Fd connection;       // for NotifySettled(); while it is open, no further interpreter is started
};

// Asks for a keeper with an interpreter that has imported what this job's workers import, and
// adopts the keeper with these options. Each step waits 1 s at most; after any failure the job
// starts as without a daemon. Requires: as ForkKeeper().
DaemonVisit VisitDaemon(const LaunchPlan& plan, const EnvironmentLookup& environment,
                        const KeeperOptions& options);

// Notifies the daemon that the job's start is over.
void NotifySettled(const Fd& connection);

// Asks the daemon for the state of its pool (Look), or to end (Stop).
// Errors: as ConnectToDaemon(); DEADLINE_EXCEEDED; FAILED_PRECONDITION — another ddprun.
absl::StatusOr<daemon::v1::Shelf> AskForShelf(const std::string& folder, bool stop);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_DAEMON_CLIENT_H_
