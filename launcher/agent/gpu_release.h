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

// Holds a restart back until the GPUs have the memory of the ended workers back, so that the next
// ones don't fail for want of it. Without the driver's library (launcher/machine/gpu_memory.h) it
// costs nothing; with it one look, unless there is something to wait for. Threads: the loop's. The
// driver is asked on a thread of its own, which is left behind when the driver hangs.
class GpuRelease {
 public:
  // How a wait ended.
  struct Result {
    absl::Duration waited;    // zero = nothing was held
    std::set<pid_t> holders;  // that hold memory still, at the limit
    std::string error;        // the driver could not be asked; "" = it could
  };

  // `limit` bounds each wait. Loads the library on its own thread.
  GpuRelease(EventLoop* loop, absl::Duration limit);
  ~GpuRelease();
  GpuRelease(const GpuRelease&) = delete;
  GpuRelease& operator=(const GpuRelease&) = delete;

  // A worker was started, whose memory the next wait is about.
  void OnStarted(pid_t pid) { pids_.insert(pid); }
  // All of them have ended but those that are kept, which may hold it. Calls `released` on the loop
  // when none holds memory, or at the limit; at once and within the call where there is no driver.
  // Not before the last wait is over.
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
  std::function<void(const Result&)> released_;  // null = nobody waits
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_GPU_RELEASE_H_
