#ifndef DDPRUN_LAUNCHER_KEEPER_AGENT_SEAT_H_
#define DDPRUN_LAUNCHER_KEEPER_AGENT_SEAT_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/fd.h"
#include "ddprun/keeper/v1/keeper.pb.h"
#include "launcher/keeper/keeper.h"
#include "launcher/os/cgroup.h"

namespace ddprun::launcher {

// A keeper's binding to its agent: its parent, or an agent that has adopted it.
struct AgentSeat {
  Fd pidfd;  // invalid (a kernel without them): only the channel shows the agent's end
  KeeperOptions options;
  std::vector<std::string> environment;  // what workers inherit, "NAME=value"
  WorkerCgroup cgroup;                   // of options.cgroup
  bool adopted = false;
};

// The environment of this process.
std::vector<std::string> OwnEnvironment();

// Shows in ps(1), in place of the command line, which agent this keeper belongs to.
void ShowAgent(pid_t agent);

// Binds the keeper to the agent that sent `message`, as if that agent had forked us: its streams
// become ours (0-2), and this process and `parked` (0 = there is none) move to its cgroups.
// Params: fds: stdin, stdout, stderr, pidfd. Errors: INVALID_ARGUMENT: the message;
// PERMISSION_DENIED and others: a cgroup. After an error the keeper belongs to no agent and has to
// end.
absl::Status Adopt(const keeper::v1::Adopt& message, std::vector<Fd> fds, pid_t parked,
                   AgentSeat* seat);

// Makes a keeper that was forked ahead this process's: with its environment, streams and cgroup, as
// if ForkKeeper(options) had just been called. Waits for that at most so long.
// Errors: what the keeper could not do, or that it doesn't answer; it must be dropped then.
absl::Status AdoptKeeper(const KeeperOptions& options, absl::Duration limit, KeeperProcess* keeper);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_KEEPER_AGENT_SEAT_H_
