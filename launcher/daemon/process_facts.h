#ifndef DDPRUN_LAUNCHER_DAEMON_PROCESS_FACTS_H_
#define DDPRUN_LAUNCHER_DAEMON_PROCESS_FACTS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/daemon/v1/daemon.pb.h"

namespace ddprun::launcher {

// What this process hands down to its children and can be set anew in another process, and in
// `facts` what can't: users and groups, rights, namespaces, the root, security labels, cgroups of
// version 1, scheduling. Not the cgroup of version 2, into which a keeper moves when it is adopted.
// Errors: of the files in /proc. Source: proc(5), getrlimit(2), sched_getaffinity(2).
absl::StatusOr<daemon::v1::Setup> OwnSetup();

// Makes this process like that, for its children. Errors: what could not be set, or still differs.
// Requires: one thread.
absl::Status Become(const daemon::v1::Setup& setup);

// Which program file this process runs: two that say the same speak the same.
std::string ProgramIdentity();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_PROCESS_FACTS_H_
