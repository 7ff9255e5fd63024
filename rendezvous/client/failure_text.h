#ifndef DDPRUN_RENDEZVOUS_CLIENT_FAILURE_TEXT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_FAILURE_TEXT_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace ddprun::rendezvous {

// The end of a call as a sentence for people that names the service. `was_open`: the call had been
// answered before. A peer that is something else (a web server, another gRPC service) becomes
// UNIMPLEMENTED "… is not a ddprun rendezvous service". Threads: any.
absl::Status DescribeFailure(const std::string& target, const grpc::Status& status, bool was_open);

// False for statuses by which a service refuses for good (rendezvous.proto, Attend). Threads: any.
bool IsWorthRetrying(const absl::Status& status);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_FAILURE_TEXT_H_
