#ifndef DDPRUN_TOOLS_WATCH_OWN_MACHINE_H_
#define DDPRUN_TOOLS_WATCH_OWN_MACHINE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "rendezvous/client/service_address.h"

namespace ddprun::launcher {

// This user's agents and services on this machine. They are called over their unix sockets, even if
// the user names this machine by an address (base/own_address.h): a socket needs neither token nor
// TLS, because only its owner can open it.

// A node of a job, as its agent describes it.
struct OwnNode {
  std::string socket;  // of its agent: "unix:/path"
  agent::v1::NodeState state;
};
// The nodes with an agent that answers; `run_id`: only of this job, "" = of all. Blocking.
std::vector<OwnNode> FindOwnNodes(const std::string& run_id, absl::Duration timeout);

// The address for calls to the service at `endpoint`, "host:port" or "unix:/path". Blocks in the
// resolver.
rendezvous::ServiceAddress AddressOf(const std::string& endpoint);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_OWN_MACHINE_H_
