#include "tools/preflight/sockets.h"

#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/machine/host_probe.h"

namespace ddprun::launcher {
namespace {

constexpr int kWaiting = 128;  // connections that wait to be accepted

absl::StatusOr<BoundSocket> BindFamily(int type, uint16_t port, int family) {
  BoundSocket bound{.socket = Fd(socket(family, type | SOCK_CLOEXEC | SOCK_NONBLOCK, 0)),
                    .family = family};
  const int fd = bound.socket.get();
  if (!bound.socket.valid()) return ErrnoStatus(errno, "socket");
  SocketAddress address;
  if (family == AF_INET6) {
    const int off = 0;
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    auto* any = reinterpret_cast<sockaddr_in6*>(&address.storage);
    *any = {.sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_any};
    address.size = sizeof(*any);
  } else {
    auto* any = reinterpret_cast<sockaddr_in*>(&address.storage);
    any->sin_family = AF_INET;
    any->sin_port = htons(port);
    address.size = sizeof(*any);
  }
  if (bind(fd, address.get(), address.size) != 0) return ErrnoStatus(errno, "bind");
  if (type == SOCK_STREAM && listen(fd, kWaiting) != 0) return ErrnoStatus(errno, "listen");
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) {
    return ErrnoStatus(errno, "getsockname");
  }
  bound.port =
      ntohs(family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(address.get())->sin6_port
                               : reinterpret_cast<const sockaddr_in*>(address.get())->sin_port);
  return bound;
}

}  // namespace

absl::StatusOr<BoundSocket> BindAny(int type, uint16_t port) {
  absl::StatusOr<BoundSocket> bound = BindFamily(type, port, AF_INET6);
  return bound.ok() ? std::move(bound) : BindFamily(type, port, AF_INET);
}

absl::StatusOr<SocketAddress> ParseAddress(const std::string& address, uint16_t port, int family) {
  addrinfo hints{};
  hints.ai_family = family;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_V4MAPPED;
  addrinfo* raw = nullptr;
  const int error = getaddrinfo(address.c_str(), absl::StrCat(port).c_str(), &hints, &raw);
  if (error != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("no address: ", Quoted(address), ": ", gai_strerror(error)));
  }
  const AddressList list(raw);
  SocketAddress parsed;
  parsed.size = list->ai_addrlen;
  std::memcpy(&parsed.storage, list->ai_addr,
              std::min<size_t>(parsed.size, sizeof(parsed.storage)));
  return parsed;
}

}  // namespace ddprun::launcher
