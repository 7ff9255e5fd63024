#ifndef DDPRUN_LAUNCHER_DAEMON_PROCESS_FACTS_H_
#define DDPRUN_LAUNCHER_DAEMON_PROCESS_FACTS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_DAEMON_PROCESS_FACTS_H_
