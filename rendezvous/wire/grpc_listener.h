#ifndef DDPRUN_RENDEZVOUS_WIRE_GRPC_LISTENER_H_
#define DDPRUN_RENDEZVOUS_WIRE_GRPC_LISTENER_H_

#include <grpcpp/server.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun::rendezvous {

struct GrpcListener {
  std::unique_ptr<grpc::Server> server;
  int port = 0;  // 0 for unix sockets
};

// Serves `service` on `listen`: "0.0.0.0:29400", "[::]:0", "name:0" or "unix:/path", with the
// settings of grpc_settings.h. Port 0 = any free one. The service must outlive the server.
//
// A unix socket that nobody answers on is replaced; one with a live server is not.
// Errors: INVALID_ARGUMENT — not an address. Else the code of the errno: UNAVAILABLE — in use, or
// not an address of this machine. The text names address and errno.
absl::StatusOr<GrpcListener> StartGrpcListener(const std::string& listen, grpc::Service* service);

// The check alone: binds and lets go again. gRPC tells no errno, and would take a unix socket away
// from a live server.
absl::Status CheckListenable(const std::string& listen);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_GRPC_LISTENER_H_
