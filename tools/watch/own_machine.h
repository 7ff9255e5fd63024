#ifndef DDPRUN_TOOLS_WATCH_OWN_MACHINE_H_
#define DDPRUN_TOOLS_WATCH_OWN_MACHINE_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/tls_files.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "rendezvous/client/service_address.h"

namespace ddprun::launcher {

// Reads the logs of an agent, and returns at their end, with `follow` at the agent's end. Blocking.
// Errors: those of ReadLogs (agent.proto); UNAVAILABLE — not reached, lost, or the agent ends; the
// text says which. Threads: any, but the first call in a process must be the only one.
absl::Status ReadLogs(const rendezvous::ServiceAddress& agent,
                      const agent::v1::ReadLogsRequest& request,
                      const std::function<void(const agent::v1::LogPiece&)>& on_piece,
                      const TlsFiles& tls);

// The state of the node whose agent is at `target`. Blocking. Errors: those of GetNodeState
// (agent.proto); UNAVAILABLE — not reached, or the agent ends; DEADLINE_EXCEEDED — no answer within
// `timeout`. Threads: as above.
absl::StatusOr<agent::v1::NodeState> FetchNodeState(const std::string& target,
                                                    absl::Duration timeout);

// This user's agents and services on this machine. They are called over their unix sockets, even if
// the user names this machine by an address (base/address.h): a socket needs neither token nor
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
