#ifndef DDPRUN_RENDEZVOUS_CLIENT_SERVICE_ADDRESS_H_
#define DDPRUN_RENDEZVOUS_CLIENT_SERVICE_ADDRESS_H_

#include <string>
#include <utility>

namespace ddprun::rendezvous {

// The target at which a rendezvous service is asked, and the name that people use for it. The two
// differ for a service of this machine, which is asked over its own socket under whatever name.
struct ServiceAddress {
  // A target without another name.
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
