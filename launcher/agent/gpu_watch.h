#ifndef DDPRUN_LAUNCHER_AGENT_GPU_WATCH_H_
#define DDPRUN_LAUNCHER_AGENT_GPU_WATCH_H_

#include <cstdint>
#include <memory>
#include <set>
#include <thread>
#include <vector>

#include "base/instant.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// How busy the node's GPUs are, for people who watch: looked at when a heartbeat goes, for the
// next one to take it along. The looks have a thread of their own, for the driver may not answer
// for seconds, or never: heartbeats go without them then, and the thread is left behind at the end.
// Without the driver's library there is no thread and no look; without a driver, or a GPU that the
// workers may use, the first look is the last.
// Life: as its agent. Threads: the agent's loop.
//
// With the heartbeats, not when a user looks: that would be a call to each node for each look, and
// nothing for Prometheus. NVML, because DCGM is a daemon with rights of its own and nvidia-smi a
// process per look.
class GpuWatch {
 public:
  GpuWatch();
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

  // What the last look has shown; none when it was taken already. Asks for the next one where that
  // is due. Says it once when a GPU is lost to its driver. Doesn't block.
  std::vector<rendezvous::GpuUse> Take(Instant now);

 private:
  struct Shared;
  static void Look(const std::shared_ptr<Shared>& shared);

  std::shared_ptr<Shared> shared_;  // null = there are no GPUs to look at
  std::thread thread_;
  Instant next_look_;
  std::set<uint32_t> lost_;  // GPUs of which that was said
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_GPU_WATCH_H_
