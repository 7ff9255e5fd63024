#ifndef DDPRUN_RENDEZVOUS_WIRE_GRPC_STATUS_H_
#define DDPRUN_RENDEZVOUS_WIRE_GRPC_STATUS_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"

namespace ddprun::rendezvous {

// Converts a status for the wire and back; the codes have the same numbers. The text is cut to 1
// KiB, because metadata has to fit into 8 KiB after percent-encoding. Threads: any.
grpc::Status ToGrpcStatus(const absl::Status& status);
absl::Status FromGrpcStatus(const grpc::Status& status);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_GRPC_STATUS_H_
