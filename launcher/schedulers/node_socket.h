#ifndef DDPRUN_LAUNCHER_SCHEDULERS_NODE_SOCKET_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_NODE_SOCKET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"

namespace ddprun::launcher {

// How the tasks of a Slurm step on one node learn that the first of them, which launches, has
// ended: it listens on an abstract unix socket (unix(7)), the others connect, and the kernel closes
// their connections when the last process that holds the socket is gone: the agent and its keeper.
//
// One task launches for all, because a node's workers need one parent: LOCAL_RANK, the keeper and
// hang detection depend on it. The others stay, because sites end a step some time after its first
// task has ended (WaitTime). Not a file with a lock, which may be left over or on a file system
// without locks; not /proc, which is blind in containers and has a race before execve(2).

// Listens on `name`. Nothing is ever accepted.
// Errors: errno, ALREADY_EXISTS when another process listens there.
absl::StatusOr<Fd> HoldNodeSocket(const std::string& name);

// Returns when nobody holds `name` any more; signals that end a step by default are ignored until
// then. A socket that nobody holds yet is waited for as long as `patience`, in case the first task
// is slower to start.
// Returns: whether somebody held it.    Errors: errno.
absl::StatusOr<bool> AwaitNodeSocket(const std::string& name, absl::Duration patience);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_NODE_SOCKET_H_
