#ifndef DDPRUN_RENDEZVOUS_CLIENT_FAILURE_TEXT_H_
#define DDPRUN_RENDEZVOUS_CLIENT_FAILURE_TEXT_H_

#include <grpcpp/support/status.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun::rendezvous {

// Describes how a call ended. A failure that may pass becomes the bare reason ("127.0.0.1:29400:
// Connection refused"), which becomes a part of a sentence. A refusal, and a peer that is no
// rendezvous service (UNIMPLEMENTED), become a sentence that names `target`. Params: peer: what
// should be at the target. Threads: any.
absl::Status DescribeFailure(const std::string& target, const grpc::Status& status,
                             absl::string_view peer = "rendezvous service");

// Whether gRPC 1.51 reports a TLS handshake that failed on this side. If the other side refuses our
// certificate, it only closes the connection. Threads: any.
bool IsTlsTrouble(const absl::Status& status);

// The reason at the end of gRPC's chain of errors, without the names of gRPC's own parts: "failed
// to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:1: Failed to connect to remote
// host: Connection refused" becomes "127.0.0.1:1: Connection refused". Params: closed_hint: added
// if the connection was closed before it could be used. Threads: any.
std::string BareReason(absl::string_view text, absl::string_view closed_hint);

// Whether DescribeFailure() met the limit of this process's descriptors. Threads: any.
bool LacksDescriptors(const absl::Status& status);

// False for statuses by which a service refuses for good (rendezvous.proto, Attend). Threads: any.
bool IsWorthRetrying(const absl::Status& status);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_FAILURE_TEXT_H_
