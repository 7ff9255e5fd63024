#ifndef DDPRUN_LAUNCHER_WATCH_AGENT_CLIENT_H_
#define DDPRUN_LAUNCHER_WATCH_AGENT_CLIENT_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/tls_files.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "rendezvous/client/service_address.h"

namespace ddprun::launcher {

// Reads the logs of an agent, and returns when they end:
// with `follow` when the agent does. Blocking. Errors: those of ReadLogs (agent.proto);
// UNAVAILABLE: not reached, lost, or it ends; the text says which. Threads: any, but the first of a
// process alone.
absl::Status ReadLogs(const rendezvous::ServiceAddress& agent,
                      const agent::v1::ReadLogsRequest& request,
                      const std::function<void(const agent::v1::LogPiece&)>& on_piece,
                      const TlsFiles& tls);

// What the node of an agent at `target` does. Blocking. Errors: those of GetNodeState
// (agent.proto); UNAVAILABLE: not reached, or it ends; DEADLINE_EXCEEDED: no answer within
// `timeout`. Threads: as above.
absl::StatusOr<agent::v1::NodeState> FetchNodeState(const std::string& target,
                                                    absl::Duration timeout);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WATCH_AGENT_CLIENT_H_
