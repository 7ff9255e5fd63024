#ifndef DDPRUN_LAUNCHER_SERVICE_ENDPOINT_FINDER_H_
#define DDPRUN_LAUNCHER_SERVICE_ENDPOINT_FINDER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "launcher/core/launch_plan.h"

namespace ddprun::launcher {

// The endpoint of a plan as seen from this machine.
struct FoundEndpoint {
  bool is_local = false;     // the endpoint's address is this machine's
  bool loopback = false;     // it resolves to a loopback address, which no other machine can reach
  std::string node_address;  // how other nodes reach this one
  std::string master_addr;   // the workers' MASTER_ADDR if rank 0 is here
  std::string literal;       // the first address of the endpoint, as inet_ntop(3) writes it
};

// Resolves the endpoint. Blocks in the resolver; for EndpointFinder and tests. `local_addr`,
// `master_addr`: as in LaunchPlan. Errors: as ResolveHost.
absl::StatusOr<FoundEndpoint> FindEndpoint(const EndpointPlan& endpoint,
                                           const std::string& local_addr,
                                           const std::string& master_addr);

// Calls FindEndpoint() on a helper thread of libuv, so that a resolver that hangs delays neither
// signals nor messages. Tries a name that doesn't resolve again every second. Threads: the loop's,
// all methods and callbacks.
class EndpointFinder {
 public:
  // `on_error` is called after each failed try, `on_found` once at the end.
  static std::unique_ptr<EndpointFinder> Start(EventLoop* loop, const LaunchPlan& plan,
                                               std::function<void(absl::Status)> on_error,
                                               std::function<void(FoundEndpoint)> on_found);
  ~EndpointFinder();
  EndpointFinder(const EndpointFinder&) = delete;
  EndpointFinder& operator=(const EndpointFinder&) = delete;

 private:
  struct Work;
  EndpointFinder() = default;
  void Try();
  void OnDone(absl::StatusOr<FoundEndpoint> result);

  EventLoop* loop_ = nullptr;
  EndpointPlan endpoint_;
  std::string local_addr_;
  std::string master_addr_;
  std::function<void(absl::Status)> on_error_;
  std::function<void(FoundEndpoint)> on_found_;
  std::unique_ptr<Timer> retry_;
  Work* work_ = nullptr;  // in flight; owned by libuv, which calls back even after our end
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SERVICE_ENDPOINT_FINDER_H_
