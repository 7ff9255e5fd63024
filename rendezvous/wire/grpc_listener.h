#ifndef DDPRUN_RENDEZVOUS_WIRE_GRPC_LISTENER_H_
#define DDPRUN_RENDEZVOUS_WIRE_GRPC_LISTENER_H_

#include <grpcpp/server.h>
#include <grpcpp/server_builder.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/tls_files.h"
#include "rendezvous/wire/grpc_settings.h"

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

// Whether an address to listen on is a path: "unix:/path".
bool IsUnixAddress(absl::string_view listen);

// A server without a listener: it serves the connections that it is given. gRPC's own listener is
// closed for good by the first accept(2) that finds no descriptor left (1.51, tcp_server_posix.cc),
// and takes whoever comes.
struct FedGrpcServer {
  std::unique_ptr<grpc::Server> server;
  // Not to be given any once the server shuts down: it would leak them.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
};

// Has the server that is built take connections that it is given, too; with TLS where there are
// files for it.
std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> AddFedPort(
    grpc::ServerBuilder* builder, const TlsFiles& tls);

// With the same settings, and TLS where there are files for it. The service must outlive the
// server. `socket`: where it listens besides, without TLS: "unix:/path"; "" = nowhere.
// Errors: UNAVAILABLE — gRPC refuses, and tells no reason.
absl::StatusOr<FedGrpcServer> StartFedGrpcServer(grpc::Service* service,
                                                 const GrpcLimits& limits = {},
                                                 const TlsFiles& tls = {},
                                                 const std::string& socket = "");

// The check alone: binds and lets go again. gRPC tells no errno, and would take a unix socket away
// from a live server.
absl::Status CheckListenable(const std::string& listen);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_GRPC_LISTENER_H_
