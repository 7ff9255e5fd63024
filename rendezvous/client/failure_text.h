#ifndef DDPRUN_RENDEZVOUS_CLIENT_FAILURE_TEXT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_FAILURE_TEXT_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// The end of a call in words. What may pass becomes the bare reason ("127.0.0.1:29400: Connection
// refused"), because it is told once as part of a sentence; a refusal, and a peer that is something
// else than a rendezvous service (UNIMPLEMENTED), become a sentence that names `target`.
// `peer`: what should be there. Threads: any.
absl::Status DescribeFailure(const std::string& target, const grpc::Status& status,
                             absl::string_view peer = "rendezvous service");

// What gRPC 1.51 says of a TLS handshake that failed here. Where the other side refuses our
// certificate, it only closes the connection. Threads: any.
bool IsTlsTrouble(const absl::Status& status);

// The reason at the end of gRPC's chain of errors, without the names of its own parts:
// "failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to
// remote host: Connection refused" is "127.0.0.1:1: Connection refused". Params: closed_hint: goes
// with a connection that was closed before it could be used. Threads: any.
std::string BareReason(absl::string_view text, absl::string_view closed_hint);

// Whether DescribeFailure() met the limit of this process's descriptors. Threads: any.
bool LacksDescriptors(const absl::Status& status);

// False for statuses by which a service refuses for good (rendezvous.proto, Attend). Threads: any.
bool IsWorthRetrying(const absl::Status& status);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_FAILURE_TEXT_H_
