#ifndef DDPRUN_LAUNCHER_MACHINE_ADDRESS_LIST_H_
#define DDPRUN_LAUNCHER_MACHINE_ADDRESS_LIST_H_

#include <netdb.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

struct FreeAddressList {
  void operator()(addrinfo* list) const { freeaddrinfo(list); }
};
using AddressList = std::unique_ptr<addrinfo, FreeAddressList>;

// getaddrinfo(3) for a stream socket. `port` 0 = none asked for.
// Errors: NOT_FOUND with getaddrinfo's text. Blocks as the resolver does.
absl::StatusOr<AddressList> LookUp(const std::string& host, uint16_t port);

// The numeric form, without scope or port; "" for families other than IPv4 and IPv6. An IPv4
// address in IPv6's form (RFC 4291, 2.5.5.2) is given as IPv4.
std::string AddressText(const sockaddr* address);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_ADDRESS_LIST_H_
