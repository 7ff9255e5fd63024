#ifndef DDPRUN_BASE_HOST_PORT_H_
#define DDPRUN_BASE_HOST_PORT_H_

#include <string>

#include "absl/strings/str_cat.h"

namespace ddprun {

// "host:port", or "[host]:port" where the host is an IPv6 address (RFC 3986, 3.2.2). `host`:
// without brackets. Pure; threads: any.
inline std::string HostPort(const std::string& host, int port) {
  const bool literal_v6 = host.find(':') != std::string::npos;
  return literal_v6 ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

}  // namespace ddprun

#endif  // DDPRUN_BASE_HOST_PORT_H_
