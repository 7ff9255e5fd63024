#ifndef DDPRUN_TOOLS_PREFLIGHT_SOCKETS_H_
#define DDPRUN_TOOLS_PREFLIGHT_SOCKETS_H_

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/instant.h"

namespace ddprun::launcher {

// Sockets of the check: non-blocking, closed on exec, for IPv6 and IPv4 at once where the machine
// has IPv6 (ipv6(7), IPV6_V6ONLY off), else for IPv4. Threads: any.

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

struct BoundSocket {
  Fd socket;
  int family = AF_INET6;
  uint16_t port = 0;
};

// `type` SOCK_DGRAM, or SOCK_STREAM, which listens. `port` 0 = any. Errors: errno.
absl::StatusOr<BoundSocket> BindAny(int type, uint16_t port);

// A numeric address for a socket of `family`. Errors: INVALID_ARGUMENT — not a numeric address.
absl::StatusOr<SocketAddress> ParseAddress(const std::string& address, uint16_t port, int family);

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_PREFLIGHT_SOCKETS_H_
