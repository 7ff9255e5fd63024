#ifndef DDPRUN_TOOLS_WATCH_STATUS_TEXT_H_
#define DDPRUN_TOOLS_WATCH_STATUS_TEXT_H_

#include <string>

#include "ddprun/agent/v1/agent.pb.h"
#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::launcher {

// kWide: also each rank, and all generations that the service remembers.
enum class StatusDetail { kPlain, kWide };

// The text of `ddprun status` for a service at `target` ("host:port"): for each job its nodes with
// the progress of their workers, and its generations. Lines with their ends. Pure; threads: any.
std::string StatusText(const rendezvous::v1::GetStatusReply& reply, const std::string& target,
                       StatusDetail detail = StatusDetail::kPlain);

// The text for a node without contact to its service. Requires: absence. Lines, as above.
std::string NodeStateText(const agent::v1::NodeState& node);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_WATCH_STATUS_TEXT_H_
