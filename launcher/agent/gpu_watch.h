#ifndef DDPRUN_LAUNCHER_AGENT_GPU_WATCH_H_
#define DDPRUN_LAUNCHER_AGENT_GPU_WATCH_H_

#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/node_use.h"

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

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_GPU_WATCH_H_
