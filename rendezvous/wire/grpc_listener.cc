#include "rendezvous/wire/grpc_listener.h"

#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::rendezvous {
namespace {

constexpr absl::string_view kUnixPrefix = "unix:";

struct HostPort {
  std::string host;
  int port = 0;
};

absl::StatusOr<HostPort> ParseTcp(absl::string_view listen) {
  const size_t colon = listen.rfind(':');
  HostPort address;
  absl::string_view host = listen.substr(0, colon);
  if (colon == absl::string_view::npos || host.empty() ||
      !absl::SimpleAtoi(listen.substr(colon + 1), &address.port) || address.port < 0 ||
      address.port > 65535 || (absl::StrContains(host, ":") && host.front() != '[')) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot listen on '", listen,
                     "': write HOST:PORT, [IPV6]:PORT or unix:PATH, with a port of 0 to 65535"));
  }
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  address.host = std::string(host);
  return address;
}

absl::Status ListenError(int error_number, const std::string& listen) {
  const absl::Status status = ErrnoStatus(error_number, absl::StrCat("cannot listen on ", listen));
  absl::string_view hint;
  if (error_number == EADDRINUSE) {
    hint = "; another job or service holds that port: end it, or choose another port";
  } else if (error_number == EADDRNOTAVAIL) {
    hint = "; that is not an address of this machine";
  } else if (error_number == EACCES) {
    hint = "; ports below 1024 and the folders of others need more rights";
  }
  const bool taken = error_number == EADDRINUSE || error_number == EADDRNOTAVAIL;
  return {taken ? absl::StatusCode::kUnavailable : status.code(),
          absl::StrCat(status.message(), hint)};
}

// 0, or an errno.
int TryBind(const addrinfo& address) {
  const Fd fd(socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return errno;
  // As gRPC binds: over connections that linger, never beside a listener.
  const int on = 1;
  if (setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) != 0) return errno;
  if (bind(fd.get(), address.ai_addr, address.ai_addrlen) != 0) return errno;
  return listen(fd.get(), 1) == 0 ? 0 : errno;
}

absl::Status CheckTcp(const std::string& listen) {
  DDPRUN_ASSIGN_OR_RETURN(const HostPort address, ParseTcp(listen));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error =
          getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
      error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", listen, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  // Of several addresses of a name those count that this machine has; one in use is an error at
  // once.
  int first_error = 0;
  bool any = false;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    const int error = TryBind(*at);
    any = any || error == 0;
    if (error == EADDRINUSE) return ListenError(error, listen);
    if (first_error == 0) first_error = error;
  }
  return any ? absl::OkStatus() : ListenError(first_error, listen);
}

absl::Status CheckUnix(const std::string& listen) {
  const std::string path = listen.substr(kUnixPrefix.size());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path)) {
    return absl::InvalidArgumentError(absl::StrCat("cannot listen on '", listen, "': the path has ",
                                                   path.size(), " bytes, 1 to ",
                                                   sizeof(address.sun_path) - 1, " are allowed"));
  }
  std::memcpy(address.sun_path, path.c_str(), path.size());
  const auto* generic = reinterpret_cast<const sockaddr*>(&address);
  struct stat info {};
  if (lstat(path.c_str(), &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      return absl::AlreadyExistsError(
          absl::StrCat("cannot listen on ", listen, ": it exists and is no socket"));
    }
    const Fd probe(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    // A live server with a full queue answers EAGAIN.
    if (!probe.valid() || connect(probe.get(), generic, sizeof(address)) == 0 || errno == EAGAIN) {
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", listen,
                       ": another process serves there: end it, or choose another"));
    }
    if (errno != ECONNREFUSED) return ListenError(errno, listen);
    if (unlink(path.c_str()) != 0) return ListenError(errno, listen);  // left by a dead server
  }
  const Fd fd(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid() || bind(fd.get(), generic, sizeof(address)) != 0) {
    return ListenError(errno, listen);
  }
  unlink(path.c_str());
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckListenable(const std::string& listen) {
  return absl::StartsWith(listen, kUnixPrefix) ? CheckUnix(listen) : CheckTcp(listen);
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
  listener.port = absl::StartsWith(listen, kUnixPrefix) ? 0 : port;
  return listener;
}

}  // namespace ddprun::rendezvous
