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
  return host == "localhost" || host == "::1" || absl::StartsWith(host, "127.");
}

// Where a server listens that others reach at `host` and at a port of the kernel's choice: at that
// address alone if no other machine can reach it, else at all. Pure.
inline std::string ListenAnyPort(const std::string& host) {
  return IsLoopback(host) ? HostPort(host, 0) : "[::]:0";
}

}  // namespace ddprun

#endif  // DDPRUN_BASE_HOST_PORT_H_
