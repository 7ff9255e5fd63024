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

namespace ddprun::launcher {

// The folder of the socket of this user's daemon on this machine: DDPRUN_DAEMON_DIR, else
// XDG_RUNTIME_DIR/ddprun-daemon, else ~/.cache/ddprun/daemon-HOST (or under XDG_CACHE_HOME), with
// the host's name because machines may share a home. "" = none of these.
std::string DaemonFolder(const EnvironmentLookup& environment);

// Checks that the folder is this user's and closed to others. Errors: PERMISSION_DENIED — another
// user's, or open to others; NOT_FOUND — no such folder; of lstat(2).
absl::Status CheckOwnFolder(const std::string& folder);

// Checks that the process at the other end is this user's. Errors: PERMISSION_DENIED with the
// user's number.
absl::Status CheckOwnPeer(int socket);

// Errors: NOT_FOUND — there is no daemon; as CheckOwnFolder(), CheckOwnPeer(); of the path.
absl::StatusOr<Fd> ConnectToDaemon(const std::string& folder);

// The daemon's socket in the folder, which is made. Errors: ALREADY_EXISTS — another daemon runs,
// with its pid; as CheckOwnFolder(); of socket(2), bind(2), listen(2).
struct DaemonSeat {
  Fd lock;
  Fd listener;
};
absl::StatusOr<DaemonSeat> TakeDaemonSeat(const std::string& folder);

}  // namespace ddprun::launcher

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
