#ifndef DDPRUN_BASE_HOST_PORT_H_
#define DDPRUN_BASE_HOST_PORT_H_

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

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

}  // namespace ddprun

#endif  // DDPRUN_BASE_HOST_PORT_H_
