#ifndef DDPRUN_RENDEZVOUS_CLIENT_CONTROL_CLIENT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_CONTROL_CLIENT_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ddprun/rendezvous/v1/rendezvous.pb.h"

namespace ddprun::rendezvous {

// Unary calls to a service, for the command line. They block until the answer or the timeout; the
// target is one of ClientOptions. Errors: UNAVAILABLE or DEADLINE_EXCEEDED with the target — nobody
// answers there; else those of the proto.

// `run_id` "" = all jobs.
absl::StatusOr<v1::GetStatusReply> FetchStatus(const std::string& target, const std::string& run_id,
                                               absl::Duration timeout);

absl::Status RequestStop(const std::string& target, const std::string& run_id,
                         const std::string& token, const std::string& reason,
                         absl::Duration timeout);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_CONTROL_CLIENT_H_
