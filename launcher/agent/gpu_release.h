#ifndef DDPRUN_LAUNCHER_AGENT_GPU_RELEASE_H_
#define DDPRUN_LAUNCHER_AGENT_GPU_RELEASE_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "base/event_loop.h"

namespace ddprun::launcher {

// Delays a restart until the driver has freed the GPU memory of the ended workers, so that the next
// ones don't run out of memory. Without the driver's library (launcher/machine/gpu_memory.h) this
// costs nothing; with it one query, unless there is something to wait for. Threads: the loop's. A
// separate thread queries the driver, and is abandoned if the driver hangs.
class GpuRelease {
 public:
  // How a wait ended.
  struct Result {
    absl::Duration waited;    // zero = no memory was held
    std::set<pid_t> holders;  // processes that still hold memory at the limit
    std::string error;        // why the driver couldn't be queried; "" = it could
  };

  // `limit` bounds each wait. Loads the library on its own thread.
  GpuRelease(EventLoop* loop, absl::Duration limit);
  ~GpuRelease();
  GpuRelease(const GpuRelease&) = delete;
  GpuRelease& operator=(const GpuRelease&) = delete;

  // A worker was started. The next wait is for the memory of all started workers.
  void OnStarted(pid_t pid) { pids_.insert(pid); }
  // All started workers have ended, except `kept`, which may hold memory. Calls `released` on the
  // loop when no other worker holds memory, or at the limit; within the call if there is no driver.
  // Requires: the last wait is over.
  void Await(const std::set<pid_t>& kept, std::function<void(const Result&)> released);

 private:
  struct Shared;
  static void Watch(const std::shared_ptr<Shared>& shared);
  void Finish(uint64_t number, const Result& result);

  EventLoop* loop_;
  const absl::Duration limit_;
  std::set<pid_t> pids_;
  std::shared_ptr<Shared> shared_;  // with the thread, which may outlive us; null = no driver
  std::thread thread_;
  std::unique_ptr<Timer> limit_timer_;
  uint64_t waits_ = 0;
  std::function<void(const Result&)> released_;  // null = no wait
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_GPU_RELEASE_H_
