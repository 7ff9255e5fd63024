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
// Errors, with getaddrinfo's text: NOT_FOUND — the name doesn't exist; UNAVAILABLE — the resolver
// can't answer. Blocks as the resolver does.
absl::StatusOr<AddressList> LookUp(const std::string& host, uint16_t port);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_MACHINE_ADDRESS_LIST_H_
