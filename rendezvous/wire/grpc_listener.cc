#include "rendezvous/wire/grpc_listener.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"
#include "rendezvous/wire/tcp_listener.h"
#include "rendezvous/wire/tls.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::string_view kUnixPrefix = "unix:";

absl::Status CheckUnix(const std::string& listen) {
  const std::string path = listen.substr(kUnixPrefix.size());
  const absl::StatusOr<sockaddr_un> address = UnixAddress(path);
  if (!address.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on '", listen, "': ", address.status().message()));
  }
  const auto* generic = reinterpret_cast<const sockaddr*>(&*address);
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      return absl::AlreadyExistsError(
          absl::StrCat("cannot listen on ", listen, ": it exists and is no socket"));
    }
    const Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // A live server with a full queue answers EAGAIN.
    if (!probe.valid() || connect(probe.get(), generic, sizeof(*address)) == 0 || errno == EAGAIN) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", listen,
                       ": another process serves there: end it, or choose another"));
    }
    if (errno != ECONNREFUSED) return ListenError(errno, listen);
    if (unlink(path.c_str()) != 0) return ListenError(errno, listen);  // left by a dead server
  }
  const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || bind(fd.get(), generic, sizeof(*address)) != 0) {
    return ListenError(errno, listen);
  }
  unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace

bool IsUnixAddress(absl::string_view listen) { return absl::StartsWith(listen, kUnixPrefix); }

absl::Status CheckListenable(const std::string& listen) {
  return IsUnixAddress(listen) ? CheckUnix(listen) : ListenTcp(listen).status();
}

absl::StatusOr<GrpcListener> StartGrpcListener(const std::string& listen, grpc::Service* service) {
  DDPRUN_RETURN_IF_ERROR(CheckListenable(listen));
  grpc::ServerBuilder builder;
  ApplyServerSettings(&builder);
  int port = 0;
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(service);
  GrpcListener listener;
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr || port <= 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", listen, ": somebody took it a moment ago, or gRPC refuses it; ",
        "LOGLEVEL=INFO shows its reason"));
  }
  listener.port = IsUnixAddress(listen) ? 0 : port;
  return listener;
}

std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> AddFedPort(
    grpc::ServerBuilder* builder, const TlsFiles& tls) {
  return builder->experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      ServerCredentialsOf(tls));
}

absl::StatusOr<FedGrpcServer> StartFedGrpcServer(grpc::Service* service, const GrpcLimits& limits,
                                                 const TlsFiles& tls, const std::string& socket) {
  grpc::ServerBuilder builder;
  ApplyServerSettings(&builder, limits);
  if (!socket.empty()) builder.AddListeningPort(socket, grpc::InsecureServerCredentials());
  FedGrpcServer fed;
  fed.acceptor = AddFedPort(&builder, tls);
  builder.RegisterService(service);
  fed.server = builder.BuildAndStart();
  if (fed.server == nullptr) {
    return absl::UnavailableError(
        "gRPC starts no server that is given its connections; LOGLEVEL=INFO shows its reason");
  }
  return fed;
}

}  // namespace ddprun::rendezvous
