#ifndef DDPRUN_LAUNCHER_WATCH_OWN_MACHINE_H_
#define DDPRUN_LAUNCHER_WATCH_OWN_MACHINE_H_

#include <string>
#include <vector>

#include "absl/time/time.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "rendezvous/client/service_address.h"

namespace ddprun::launcher {

// What runs on this machine under this user. It is asked over its unix socket, by whatever name of
// this machine it was called (base/own_address.h): the socket needs neither token nor TLS, because
// only its owner can open it.

// A node of a job, as its agent describes it.
struct OwnNode {
  std::string socket;  // of its agent: "unix:/path"
  agent::v1::NodeState state;
};
// The nodes with an agent that answers; `run_id`: of this job alone, "" = of all. Blocking.
std::vector<OwnNode> FindOwnNodes(const std::string& run_id, absl::Duration timeout);

// How to ask the service at `endpoint`, "host:port" or "unix:/path". Blocks in the resolver.
rendezvous::ServiceAddress AddressOf(const std::string& endpoint);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WATCH_OWN_MACHINE_H_
