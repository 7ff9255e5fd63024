#ifndef DDPRUN_LAUNCHER_OS_DEAD_RUNTIME_DIRS_H_
#define DDPRUN_LAUNCHER_OS_DEAD_RUNTIME_DIRS_H_

#include <string>

#include "absl/time/time.h"

namespace ddprun::launcher {

// Removes this user's runtime directories (RuntimeDir) of dead agents in `base`. A keeper removes
// its agent's directory, but agents that were killed together with their keepers (a reboot, `kill
// -9 -1`) leave theirs. An agent is dead if its sockets have no listener; so is a `ddprun
// rendezvous`, which has only the service's socket. A directory without sockets may belong to an
// agent that is just starting. Directories that changed within `least_age` stay, because a socket
// also refuses callers between bind(2) and listen(2). Nothing is removed if other machines may
// share the file system of `base`: their sockets refuse us, too. Bound: 64 directories a call.
// Threads: any.
void RemoveDeadRuntimeDirs(const std::string& base, absl::Duration least_age = absl::Minutes(1));

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_DEAD_RUNTIME_DIRS_H_
