#ifndef DDPRUN_BASE_ADDRESS_H_
#define DDPRUN_BASE_ADDRESS_H_

#include <sys/un.h>

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

struct sockaddr;

namespace ddprun {

// "host:port", or "[host]:port" where the host is an IPv6 address (RFC 3986, 3.2.2). `host`:
// without brackets. Pure; threads: any.
inline std::string HostPort(const std::string& host, int port) {
  const bool literal_v6 = host.find(':') != std::string::npos;
  return literal_v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

// Whether the host is this machine however it is resolved: "localhost", "::1" or an address of
// 127/8. Pure.
inline bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || absl::StartsWith(host, "127.");
}

// The address on which a server listens so that others reach it at `host`: `host` itself if no
// other machine can reach that, else all addresses. `port` 0 = one that the kernel chooses. Pure.
inline std::string ListenFor(const std::string& host, int port = 0) {
  return HostPort(IsLoopback(host) ? host : "::", port);
}

// The host of a socket's address in numeric form, without scope or port; "" for families other than
// IPv4 and IPv6. An IPv4 address in IPv6's form (RFC 4291, 2.5.5.2) is given as IPv4. Threads: any.
std::string AddressText(const sockaddr* address);

// All addresses of this machine's interfaces, as inet_ntop(3) writes them, each once; scopes are
// cut off. "This machine" is this process's network namespace. Errors: of getifaddrs(3).
// Threads: any.
absl::StatusOr<std::vector<std::string>> OwnAddresses();

// Whether a numeric address is this machine's own: an interface has it, it is a loopback address
// (RFC 1122, 3.2.1.3), or it is unspecified (a connection to 0.0.0.0 or :: stays on this machine).
// IPv4 within IPv6 counts as IPv4. A link-local address is the same on many links: the caller has
// to know the link. False for what is no address. Threads: any.
bool IsOwnAddress(const std::string& address);

// The address of a unix socket that is a file (unix(7)).
// Errors: INVALID_ARGUMENT — sun_path doesn't take a path of that length: how long it is and may
// be. Pure; threads: any.
absl::StatusOr<sockaddr_un> UnixAddress(absl::string_view path);

}  // namespace ddprun

#endif  // DDPRUN_BASE_ADDRESS_H_
