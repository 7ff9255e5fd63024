#ifndef DDPRUN_LAUNCHER_DAEMON_WARDEN_H_
#define DDPRUN_LAUNCHER_DAEMON_WARDEN_H_

#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// The first word of a command line that is a warden: `ddprun daemon-warden`, for ddprun itself.
inline constexpr absl::string_view kWardenCommand = "daemon-warden";
// The variable with the descriptor number of the warden's socket.
inline constexpr char kWardenSocket[] = "DDPRUN_WARDEN_SOCKET";

// The supervisor of a keeper that is forked before its agent exists. The warden reads a Setup from
// its socket, takes on those properties, forks the keeper, gives it away, and outlives it. If the
// keeper is killed, its processes become the warden's children, which kills them. If the keeper was
// stopped, the warden continues it when the other end of the socket is closed. This works without
// the daemon. Returns: the exit status.
int RunWarden();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_WARDEN_H_
