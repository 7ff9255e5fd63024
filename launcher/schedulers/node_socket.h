#ifndef DDPRUN_LAUNCHER_SCHEDULERS_NODE_SOCKET_H_
#define DDPRUN_LAUNCHER_SCHEDULERS_NODE_SOCKET_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/fd.h"

namespace ddprun::launcher {

// How the tasks of a Slurm step on one node detect the end of the first of them, which launches the
// workers: the first one listens on an abstract unix socket (unix(7)), and the others connect. The
// kernel closes their connections when the last process that holds the socket is gone: the agent
// and its keeper.
//
// One task launches for all, because a node's workers need one parent: LOCAL_RANK, the keeper and
// hang detection depend on it. The others stay, because sites end a step some time after its first
// task has ended (WaitTime). A file with a lock isn't used, because it may be left over or lie on a
// file system without locks; nor is /proc, which is blind in containers and has a race before
// execve(2).

// Listens on `name`. Nothing is ever accepted.
// Errors: errno, ALREADY_EXISTS when another process listens there.
absl::StatusOr<Fd> HoldNodeSocket(const std::string& name);

// Returns when no process holds `name` any more. Signals that end a step by default are ignored
// until then. Waits up to `patience` for the socket to appear, because the first task may start
// later. Returns: whether a process held the socket.    Errors: errno.
absl::StatusOr<bool> AwaitNodeSocket(const std::string& name, absl::Duration patience);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SCHEDULERS_NODE_SOCKET_H_
