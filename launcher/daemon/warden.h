#ifndef DDPRUN_LAUNCHER_DAEMON_WARDEN_H_
#define DDPRUN_LAUNCHER_DAEMON_WARDEN_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The first word of a command line that is a warden: `ddprun daemon-warden`, for ddprun itself.
inline constexpr absl::string_view kWardenCommand = "daemon-warden";
// The variable that says which descriptor is its socket.
inline constexpr char kWardenSocket[] = "DDPRUN_WARDEN_SOCKET";

// The parent of a keeper that is forked before there is an agent, in the place of that agent: it
// becomes what the Setup says that it reads from its socket, forks the keeper, gives it away, and
// outlives it. A keeper that is killed leaves its processes to us, and we kill them; one that
// somebody stopped goes on when the other end of the socket is gone. Neither needs the daemon.
// Returns: the exit status.
int RunWarden();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_WARDEN_H_
