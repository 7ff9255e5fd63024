#ifndef DDPRUN_LAUNCHER_DAEMON_MEETING_PLACE_H_
#define DDPRUN_LAUNCHER_DAEMON_MEETING_PLACE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "launcher/core/environment.h"

namespace ddprun::launcher {

// Where this user's daemon on this machine and those who ask it meet: DDPRUN_DAEMON_DIR, else
// XDG_RUNTIME_DIR/ddprun-daemon, else ~/.cache/ddprun/daemon-HOST (or under XDG_CACHE_HOME),
// because homes may be shared by machines.
// "" = there is neither.
std::string DaemonFolder(const EnvironmentLookup& environment);

// The user's own folder that nobody else may enter. Errors: PERMISSION_DENIED — somebody else's, or
// open to others; NOT_FOUND — it isn't there; of lstat(2).
absl::Status CheckOwnFolder(const std::string& folder);

// A process of this user at the other end. Errors: PERMISSION_DENIED with the user's number.
absl::Status CheckOwnPeer(int socket);

// Errors: NOT_FOUND — no daemon is there; as CheckOwnFolder(), CheckOwnPeer(); of the path.
absl::StatusOr<Fd> ConnectToDaemon(const std::string& folder);

// In the folder, which is made. Errors: ALREADY_EXISTS — another daemon is there, with its pid; as
// CheckOwnFolder(); of socket(2), bind(2), listen(2).
struct DaemonSeat {
  Fd lock;
  Fd listener;
};
absl::StatusOr<DaemonSeat> TakeDaemonSeat(const std::string& folder);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_MEETING_PLACE_H_
