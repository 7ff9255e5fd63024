#ifndef DDPRUN_RENDEZVOUS_CLIENT_SERVICE_ADDRESS_H_
#define DDPRUN_RENDEZVOUS_CLIENT_SERVICE_ADDRESS_H_

#include <functional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

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

// Finds the service if its place may change. Threads: the loop's.
class ServiceLocator {
 public:
  virtual ~ServiceLocator() = default;
  // Calls `found` once, on the loop, unless the caller or the locator is destroyed before: with a
  // target, as ClientOptions.target, or with the reason why there is none. A call replaces the one
  // before, which then gets no answer. Params: again: the last target didn't answer, so the locator
  // waits a moment for another one; moved: called once after a target, when the service is no
  // longer there, whatever its connection does.
  virtual void Locate(bool again, std::function<void(absl::StatusOr<std::string>)> found,
                      std::function<void()> moved) = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_SERVICE_ADDRESS_H_
