#ifndef DDPRUN_RENDEZVOUS_CLIENT_SERVICE_LOCATOR_H_
#define DDPRUN_RENDEZVOUS_CLIENT_SERVICE_LOCATOR_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace ddprun::rendezvous {

// Who says where the service is, where that may change. Threads: the loop's.
class ServiceLocator {
 public:
  virtual ~ServiceLocator() = default;
  // Calls `found` once, on the loop, unless it or the locator is gone before: with a target, as
  // ClientOptions.target, or with why there is none. `again`: the last one didn't answer; it waits
  // for another one, for a moment. A call replaces the one before, which is never answered.
  // `moved`: after a target, once: the service is not there any more, whatever its connection says.
  virtual void Locate(bool again, std::function<void(absl::StatusOr<std::string>)> found,
                      std::function<void()> moved) = 0;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CLIENT_SERVICE_LOCATOR_H_
