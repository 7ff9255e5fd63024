#ifndef DDPRUN_LAUNCHER_WATCH_STATUS_TEXT_H_
#define DDPRUN_LAUNCHER_WATCH_STATUS_TEXT_H_

#include <string>

#include "ddprun/rendezvous/v1/status.pb.h"

namespace ddprun::launcher {

// What `ddprun status` prints of a service at `target` ("host:port"): for each job its nodes with
// how far their workers are, and its generations. Lines, each ended. Pure; threads: any.
std::string StatusText(const rendezvous::v1::GetStatusReply& reply, const std::string& target);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WATCH_STATUS_TEXT_H_
