#ifndef DDPRUN_RENDEZVOUS_CLIENT_SERVICE_ADDRESS_H_
#define DDPRUN_RENDEZVOUS_CLIENT_SERVICE_ADDRESS_H_

#include <string>
#include <utility>

namespace ddprun::rendezvous {

// Where a rendezvous service is asked, and what people call that place. The two differ for a
// service of this machine, which is asked over its own socket whatever name was given.
struct ServiceAddress {
  // A target that has no other name.
  ServiceAddress(std::string both)  // NOLINT(google-explicit-constructor): it is its own name
      : target(both), name(std::move(both)) {}
  ServiceAddress(std::string target_value, std::string name_value)
      : target(std::move(target_value)), name(std::move(name_value)) {}
  ServiceAddress(const char* both)  // NOLINT(google-explicit-constructor): as above
      : ServiceAddress(std::string(both)) {}

  std::string target;  // "host:port" or "unix:/path"
  std::string name;    // "host0:29400"
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_SERVICE_ADDRESS_H_
