#ifndef DDPRUN_LAUNCHER_DAEMON_MEETING_PLACE_H_
#define DDPRUN_LAUNCHER_DAEMON_MEETING_PLACE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "launcher/core/environment.h"

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

#endif  // DDPRUN_LAUNCHER_DAEMON_MEETING_PLACE_H_
