#ifndef DDPRUN_RENDEZVOUS_CLIENT_FAILURE_TEXT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_FAILURE_TEXT_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"

namespace ddprun::rendezvous {

// The end of a call in words. What may pass becomes the bare reason ("127.0.0.1:29400: Connection
// refused"), since it is told once as part of a sentence; a refusal, and a peer that is something
// else than a rendezvous service (UNIMPLEMENTED), become a sentence that names `target`. Threads:
// any.
absl::Status DescribeFailure(const std::string& target, const grpc::Status& status);

// False for statuses by which a service refuses for good (rendezvous.proto, Attend). Threads: any.
bool IsWorthRetrying(const absl::Status& status);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_FAILURE_TEXT_H_
