#ifndef DDPRUN_BASE_OWN_ADDRESS_H_
#define DDPRUN_BASE_OWN_ADDRESS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

struct sockaddr;

namespace ddprun {

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

}  // namespace ddprun

#endif  // DDPRUN_BASE_OWN_ADDRESS_H_
