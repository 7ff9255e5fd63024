#ifndef DDPRUN_LAUNCHER_AGENT_GPU_WATCH_H_
#define DDPRUN_LAUNCHER_AGENT_GPU_WATCH_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/instant.h"
#include "rendezvous/core/node_info.h"

namespace ddprun::launcher {

// How busy the node's GPUs are, for `ddprun status` and the page. Each heartbeat takes the last
// measurement along and requests the next one. A separate thread measures, because the driver may
// not answer for seconds, or never: heartbeats then go without figures, and the thread is abandoned
// at the end. Without the driver's library there is no thread; without a driver, or a GPU that the
// workers may use, the first measurement is the last.
// Life: as its agent. Threads: the agent's loop.
//
// The figures travel with the heartbeats. If they were fetched when a user asks, each request would
// cost a call to each node, and Prometheus would have none. NVML measures, because DCGM is a daemon
// with rights of its own, and nvidia-smi would be a new process each time.
class GpuWatch {
 public:
  GpuWatch();
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // The last measurement; empty if it was taken already. Requests the next one when that is due,
  // and prints a line once when the driver has lost a GPU. Doesn't block.
  std::vector<rendezvous::GpuUse> Take(Instant now);

 private:
  struct Shared;
  static void Look(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;  // null = there are no GPUs to look at
  std::thread thread_;
  Instant next_look_;
  std::set<uint32_t> lost_;  // GPUs that were reported as lost
};

// Delays a restart until the driver has freed the GPU memory of the ended workers, so that the next
// ones don't run out of memory. Without the driver's library (launcher/machine/gpu_usage.h) this
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

#endif  // DDPRUN_LAUNCHER_AGENT_GPU_WATCH_H_
