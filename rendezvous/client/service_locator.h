#ifndef DDPRUN_RENDEZVOUS_CLIENT_SERVICE_LOCATOR_H_
#define DDPRUN_RENDEZVOUS_CLIENT_SERVICE_LOCATOR_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"

namespace ddprun::rendezvous {

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

#endif  // DDPRUN_RENDEZVOUS_CLIENT_SERVICE_LOCATOR_H_
