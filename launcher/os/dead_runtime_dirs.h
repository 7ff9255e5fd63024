#ifndef DDPRUN_LAUNCHER_OS_DEAD_RUNTIME_DIRS_H_
#define DDPRUN_LAUNCHER_OS_DEAD_RUNTIME_DIRS_H_

#include <string>

#include "absl/time/time.h"

namespace ddprun::launcher {

// Removes this user's runtime directories (RuntimeDir) in `base` whose agents are dead: a keeper
// removes that of its agent, but nobody those of agents that were killed together with their
// keepers, as by a reboot or `kill -9 -1`. An agent is dead if nobody listens on its sockets, and
// so is a `ddprun rendezvous`, which has the service's alone; a directory without any may belong to
// an agent that is just starting. Directories that changed within `least_age` are left: a socket
// refuses callers between bind(2) and listen(2), too. So is all of a `base` on a file system that
// other machines may share, where their sockets refuse us.
// Bound: 64 directories a call. Threads: any.
void RemoveDeadRuntimeDirs(const std::string& base, absl::Duration least_age = absl::Minutes(1));

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_DEAD_RUNTIME_DIRS_H_
