#ifndef DDPRUN_TOOLS_WATCH_AGENT_CLIENT_H_
#define DDPRUN_TOOLS_WATCH_AGENT_CLIENT_H_

#include <functional>
#include <string>

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

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_AGENT_CLIENT_H_
