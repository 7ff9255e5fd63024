#include "rendezvous/wire/tcp_listener.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::rendezvous {
namespace {

// Connections that wait to be accepted; the kernel cuts it to net.core.somaxconn.
constexpr int kBacklog = 1 << 16;

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

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  sockaddr* generic() { return reinterpret_cast<sockaddr*>(&storage); }
  bool operator==(const SocketAddress& other) const {
    return length == other.length && std::memcmp(&storage, &other.storage, length) == 0;
  }
  in_port_t& port() {
    return storage.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&storage)->sin6_port
                                         : reinterpret_cast<sockaddr_in*>(&storage)->sin_port;
  }
};

SocketAddress From(const addrinfo& info) {
  SocketAddress address;
  std::memcpy(&address.storage, info.ai_addr, info.ai_addrlen);
  address.length = info.ai_addrlen;
  return address;
}

bool IsForAll(SocketAddress& address) {
  if (address.storage.ss_family == AF_INET6) {
    return IN6_IS_ADDR_UNSPECIFIED(&reinterpret_cast<sockaddr_in6*>(&address.storage)->sin6_addr);
  }
  return reinterpret_cast<sockaddr_in*>(&address.storage)->sin_addr.s_addr == INADDR_ANY;
}

SocketAddress AllAddresses(int family, in_port_t port) {
  SocketAddress address;
  address.storage.ss_family = static_cast<sa_family_t>(family);
  address.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  address.port() = port;
  return address;
}

bool Set(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof(value)) == 0;
}

// Returns 0 or an errno. If `address` has port 0, it gets the chosen port, which is none of
// `avoided`.
int Listen(SocketAddress& address, const std::vector<uint16_t>& avoided, Fd* listener) {
  const int family = address.storage.ss_family;
  Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return errno;
  // Bound as gRPC does: over lingering connections, but never beside another listener.
  if (!Set(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1)) return errno;
  if (family == AF_INET6 && !Set(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, IsForAll(address) ? 0 : 1)) {
    return errno;
  }
  // The connections inherit these.
  const auto unheard = static_cast<int>(absl::ToInt64Milliseconds(kServerKeepaliveTimeout));
  if (!Set(fd.get(), IPPROTO_TCP, TCP_NODELAY, 1) ||
      !Set(fd.get(), IPPROTO_TCP, TCP_USER_TIMEOUT, unheard)) {
    return errno;
  }
  if (bind(fd.get(), address.generic(), address.length) != 0) return errno;
  SocketAddress bound;
  bound.length = sizeof(bound.storage);
  if (getsockname(fd.get(), bound.generic(), &bound.length) != 0) return errno;
  // While this port is held, the kernel chooses another one.
  if (address.port() == 0 && absl::c_linear_search(avoided, ntohs(bound.port()))) {
    return Listen(address, avoided, listener);
  }
  if (listen(fd.get(), kBacklog) != 0) return errno;
  address = bound;
  *listener = std::move(fd);
  return 0;
}

// All addresses of IPv4 and IPv6, or of IPv4 if there is no IPv6.
int ListenOnAll(SocketAddress& address, const std::vector<uint16_t>& avoided, Fd* listener) {
  const in_port_t port = address.port();
  SocketAddress both = AllAddresses(AF_INET6, port);
  int error = Listen(both, avoided, listener);
  if (error == EAFNOSUPPORT || error == EADDRNOTAVAIL) {
    both = AllAddresses(AF_INET, port);
    error = Listen(both, avoided, listener);
  }
  address = both;
  return error;
}

}  // namespace

absl::Status ListenError(int error_number, const std::string& listen) {
  const absl::Status status = ErrnoStatus(error_number, absl::StrCat("cannot listen on ", listen));
  absl::string_view hint;
  if (error_number == EADDRINUSE) {
    hint = kPortTakenHint;
  } else if (error_number == EADDRNOTAVAIL) {
    hint = "; that is not an address of this machine";
  } else if (error_number == EACCES) {
    hint = "; ports below 1024 and the folders of others need more rights";
  }
  const bool taken = error_number == EADDRINUSE || error_number == EADDRNOTAVAIL;
  return {taken ? absl::StatusCode::kUnavailable : status.code(),
          absl::StrCat(status.message(), hint)};
}

absl::StatusOr<TcpListener> ListenTcp(const std::string& listen,
                                      const std::vector<uint16_t>& avoided) {
  DDPRUN_ASSIGN_OR_RETURN(const HostPort wanted, ParseTcp(listen));
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  if (const int error =
          getaddrinfo(wanted.host.c_str(), std::to_string(wanted.port).c_str(), &hints, &found);
      error != 0) {
    return absl::UnavailableError(
        absl::StrCat("cannot listen on ", listen, ": ", gai_strerror(error)));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  // If a name has several addresses, those of this machine count. A requested port that is in use
  // on one of them is an error.
  TcpListener listener;
  int first_error = 0;
  std::vector<SocketAddress> tried;
  for (const addrinfo* at = found; at != nullptr; at = at->ai_next) {
    SocketAddress address = From(*at);
    // A hosts file may list an address twice: glibc takes ::1 for localhost as 127.0.0.1, too.
    if (absl::c_linear_search(tried, address)) continue;
    tried.push_back(address);
    if (wanted.port == 0) address.port() = htons(static_cast<in_port_t>(listener.port));
    Fd fd;
    const int error =
        IsForAll(address) ? ListenOnAll(address, avoided, &fd) : Listen(address, avoided, &fd);
    if (error == EADDRINUSE && wanted.port != 0) return ListenError(error, listen);
    if (error == 0) {
      listener.sockets.push_back(std::move(fd));
      listener.port = ntohs(address.port());
    } else if (first_error == 0) {
      first_error = error;
    }
  }
  if (listener.sockets.empty()) return ListenError(first_error, listen);
  return listener;
}

}  // namespace ddprun::rendezvous
