// TCP ports of this machine.
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <fstream>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/address.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "launcher/machine/host_probe.h"

namespace ddprun::launcher {
namespace {

// Binds a fresh socket with SO_REUSEADDR. Returns an invalid Fd and leaves errno on failure.
Fd BoundSocket(const sockaddr* address, socklen_t length, bool dual_stack) {
  Fd fd(socket(address->sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return fd;
  const int on = 1;
  const int v6_only = dual_stack ? 0 : 1;
  const bool ok = setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)) == 0 &&
                  (address->sa_family != AF_INET6 || setsockopt(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY,
                                                                &v6_only, sizeof(v6_only)) == 0) &&
                  bind(fd.get(), address, length) == 0;
  if (ok) return fd;
  const int error = errno;  // close(2) may change it
  fd.Reset();
  errno = error;
  return fd;
}

Fd BoundOnAllAddresses(uint16_t port) {
  sockaddr_in6 any6{};
  any6.sin6_family = AF_INET6;
  any6.sin6_addr = in6addr_any;
  any6.sin6_port = htons(port);
  Fd fd = BoundSocket(reinterpret_cast<const sockaddr*>(&any6), sizeof(any6), /*dual_stack=*/true);
  // A kernel or container without IPv6.
  if (fd.valid() || (errno != EAFNOSUPPORT && errno != EADDRNOTAVAIL)) return fd;
  sockaddr_in any4{};
  any4.sin_family = AF_INET;
  any4.sin_port = htons(port);
  return BoundSocket(reinterpret_cast<const sockaddr*>(&any4), sizeof(any4), false);
}

absl::Status PortError(int error, absl::string_view what) {
  absl::string_view advice;
  if (error == EADDRINUSE) advice = "; end the process that holds it, or choose another port";
  if (error == EADDRNOTAVAIL) advice = "; no interface of this machine has that address";
  if (error == EACCES) advice = "; ports below 1024 need privileges, choose a higher one";
  return absl::UnavailableError(absl::StrCat(ErrnoStatus(error, what).message(), advice));
}

}  // namespace

absl::StatusOr<ReservedPort> ReservePort(uint16_t port, const std::vector<uint16_t>& avoided) {
  ReservedPort reserved{.socket = BoundOnAllAddresses(port)};
  if (!reserved.socket.valid()) return PortError(errno, absl::StrCat("reserve TCP port ", port));
  sockaddr_in6 bound{};
  socklen_t length = sizeof(bound);
  if (getsockname(reserved.socket.get(), reinterpret_cast<sockaddr*>(&bound), &length) != 0) {
    return PortError(errno, "getsockname of the reserved port");
  }
  // sin_port and sin6_port lie at the same place (RFC 3493 3.3).
  reserved.port = ntohs(bound.sin6_port);
  // The kernel gives another one while this one is held. Nobody listens on it, so a service can.
  if (port == 0 && absl::c_linear_search(avoided, reserved.port)) return ReservePort(0, avoided);
  return reserved;
}

std::string KernelPortsHint(uint16_t port, const std::string& root) {
  std::ifstream file(root + "/proc/sys/net/ipv4/ip_local_port_range");
  int first = 0;
  int last = 0;
  if (!(file >> first >> last) || port < first || port > last) return "";
  return absl::StrCat("; the kernel gives ports ", first, " to ", last,
                      " to any connection (net.ipv4.ip_local_port_range): one outside is safer");
}

absl::Status ListenOn(const ReservedPort& port) {
  if (listen(port.socket.get(), SOMAXCONN) == 0) return absl::OkStatus();
  return PortError(errno, absl::StrCat("listen on TCP port ", port.port));
}

absl::Status CheckListenable(const std::string& host, uint16_t port) {
  DDPRUN_ASSIGN_OR_RETURN(const AddressList list, LookUp(host, port));
  bool listenable = false;
  int error = EADDRNOTAVAIL;
  for (const addrinfo* entry = list.get(); entry != nullptr; entry = entry->ai_next) {
    // Not dual stack: a name with both families is checked address by address.
    const bool dual_stack = AddressText(entry->ai_addr) == "::";
    const Fd fd = BoundSocket(entry->ai_addr, entry->ai_addrlen, dual_stack);
    if (fd.valid() && listen(fd.get(), 1) == 0) {
      listenable = true;
      continue;
    }
    error = errno;
    // A name's second address may be of a family that this machine lacks; others are real.
    if (error != EADDRNOTAVAIL && error != EAFNOSUPPORT) {
      listenable = false;
      break;
    }
  }
  if (listenable) return absl::OkStatus();
  return PortError(error, absl::StrCat("listen on ", host, " port ", port));
}

}  // namespace ddprun::launcher
