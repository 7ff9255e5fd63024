#ifndef DDPRUN_LAUNCHER_DAEMON_WARDEN_H_
#define DDPRUN_LAUNCHER_DAEMON_WARDEN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "ddprun/daemon/v1/daemon.pb.h"

namespace ddprun::launcher {

// The properties of this process that its children inherit and that another process can set for
// itself, and in `facts` those that it can't: users and groups, capabilities, namespaces, the root,
// security labels, cgroups of version 1, scheduling. Without the cgroup of version 2, into which a
// keeper moves when it is adopted. Errors: of the files in /proc. Source: proc(5), getrlimit(2),
// sched_getaffinity(2).
absl::StatusOr<daemon::v1::Setup> OwnSetup();

// Sets these properties for this process and its children. Errors: a property that can't be set, or
// still differs.
// Requires: one thread.
absl::Status Become(const daemon::v1::Setup& setup);

// Identifies the program file of this process: equal for processes of the same build, which speak
// the same protocol.
std::string ProgramIdentity();

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
