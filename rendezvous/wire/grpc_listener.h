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
// A unix socket without a live server is replaced; one with a live server isn't. Errors:
// INVALID_ARGUMENT: not an address. Else the code of the errno: UNAVAILABLE: in use, or not an
// address of this machine. The text names address and errno.
absl::StatusOr<GrpcListener> StartGrpcListener(const std::string& listen, grpc::Service* service);

// Whether an address to listen on is a path: "unix:/path".
bool IsUnixAddress(absl::string_view listen);

// A server without a listener, which serves the connections that it is given. gRPC's own listener
// stops for good at the first accept(2) without a free descriptor (1.51, tcp_server_posix.cc), and
// accepts every peer.
struct FedGrpcServer {
  std::unique_ptr<grpc::Server> server;
  // Requires: gets no connection after the server shuts down, because it would leak the connection.
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor;
};

// Makes the server accept connections that it is given; with TLS if there are files for it.
std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> AddFedPort(
    grpc::ServerBuilder* builder, const TlsFiles& tls);

// Starts a server with the settings of grpc_settings.h, and TLS if there are files for it. The
// service must outlive the server. Params: socket: a further address without TLS: "unix:/path"; ""
// = none. Errors: UNAVAILABLE: gRPC refuses, without a reason.
absl::StatusOr<FedGrpcServer> StartFedGrpcServer(grpc::Service* service,
                                                 const GrpcLimits& limits = {},
                                                 const TlsFiles& tls = {},
                                                 const std::string& socket = "");

// Checks an address by binding it for a moment, because gRPC doesn't report the errno, and would
// take a unix socket away from a live server.
absl::Status CheckListenable(const std::string& listen);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WIRE_GRPC_LISTENER_H_
