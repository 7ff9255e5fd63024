#ifndef DDPRUN_LAUNCHER_AGENT_WORKER_NOTICES_H_
#define DDPRUN_LAUNCHER_AGENT_WORKER_NOTICES_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/event_loop.h"
#include "launcher/core/launch_plan.h"
#include "launcher/core/step_times.h"
#include "launcher/stores/core/store_roll.h"
#include "launcher/stores/tcp_store_server.h"
#include "rendezvous/core/service_message.h"

namespace ddprun::launcher {

// Prints lines about workers that cause no other event: one that doesn't connect to the workers'
// store, and one that doesn't end. The lines have no effect.
// Threads: the loop's.
class WorkerNotices {
 public:
  struct Hooks {
    // Where a running worker is, as HangMonitor::WhereText; "" = not known.
    std::function<std::string(uint32_t local_rank)> where;
    // For the event log.
    std::function<void(const std::string& event,
                       std::vector<std::pair<std::string, std::string>> fields)>
        record;
  };

  WorkerNotices(EventLoop* loop, const LaunchPlan* plan, Hooks hooks);

  // To be called before the workers of a generation are spawned.
  void Begin(const rendezvous::Assignment& assignment);
  void OnStarted(uint32_t local_rank, pid_t pid);
  void OnEnded(uint32_t local_rank, bool well);
  // The workers are being stopped, or all have ended.
  void Stop();
  // A client has connected to the workers' store, which is on this node.
  void OnStoreClient(const StoreClient& client);
  // All workers of another node ended with 0 a while ago (`evidence`), and none of this node has.
  void OnOthersEnded(const std::string& evidence);

 private:
  void Arm();
  void OnTimer();
  void NameMissing(const StoreRoll::Missing& missing);
  void NameLaggards(const std::vector<uint32_t>& local_ranks, const std::string& evidence);

  EventLoop* loop_;
  const LaunchPlan* plan_;
  Hooks hooks_;
  rendezvous::Assignment assignment_;
  std::vector<pid_t> pids_;  // by local rank; 0 = doesn't run. Empty = print nothing
  StoreRoll roll_;
  Laggards laggards_;
  Timer timer_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_WORKER_NOTICES_H_
