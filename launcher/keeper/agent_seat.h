#ifndef DDPRUN_LAUNCHER_KEEPER_AGENT_SEAT_H_
#define DDPRUN_LAUNCHER_KEEPER_AGENT_SEAT_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/fd.h"
#include "ddprun/keeper/v1/keeper.pb.h"
#include "launcher/keeper/keeper.h"
#include "launcher/os/cgroup.h"

namespace ddprun::launcher {

// What a keeper has of its agent: of its parent, or of the one that has adopted it.
struct AgentSeat {
  Fd pidfd;  // invalid (a kernel without them): only the channel tells of the agent's end
  KeeperOptions options;
  std::vector<std::string> environment;  // what workers inherit, "NAME=value"
  WorkerCgroup cgroup;                   // of options.cgroup
  bool adopted = false;
};

// The environment of this process.
std::vector<std::string> OwnEnvironment();

// Shows whose keeper this process is in ps(1), in place of its command line.
void ShowAgent(pid_t agent);

// Gives the seat to who says so: its streams become ours (0-2), and we and `parked` (0 = there is
// none) go to its cgroups, as if it had forked us.
// Params: fds: stdin, stdout, stderr, pidfd. Errors: INVALID_ARGUMENT: the message;
// PERMISSION_DENIED and others: a cgroup. After an error the keeper is nobody's, and has to end.
absl::Status Adopt(const keeper::v1::Adopt& message, std::vector<Fd> fds, pid_t parked,
                   AgentSeat* seat);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_AGENT_SEAT_H_
