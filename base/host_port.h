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

// Whether it is this machine by any reading: "localhost", "::1" or an address of 127/8. Pure.
inline bool IsLoopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host == "[::1]" || absl::StartsWith(host, "127.");
}

// Where a server listens that others reach at `host`: at that address alone if no other machine can
// reach it, else at all. `port` 0 = of the kernel's choice. Pure.
inline std::string ListenFor(const std::string& host, int port = 0) {
  return HostPort(IsLoopback(host) ? host : "::", port);
}

}  // namespace ddprun

#endif  // DDPRUN_BASE_HOST_PORT_H_
