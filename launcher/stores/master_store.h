#ifndef DDPRUN_LAUNCHER_STORES_MASTER_STORE_H_
#define DDPRUN_LAUNCHER_STORES_MASTER_STORE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "base/event_loop.h"
#include "launcher/core/launch_plan.h"
#include "launcher/machine/host_probe.h"
#include "launcher/stores/store_probe.h"
#include "launcher/stores/tcp_store_server.h"
#include "rendezvous/core/message.h"

namespace ddprun::launcher {

// This node's master port, reserved for the next generation, and the store on it while rank 0 is
// here (docs/PROTOCOL.md, R11 and W9). Threads: the loop's.
class MasterStore {
 public:
  // Without a port. `plan` outlives it.
  explicit MasterStore(const LaunchPlan* plan) : plan_(plan) {}

  // Reserves a port: the one that the user gave, else any, another one than what is held. Errors:
  // UNAVAILABLE with the port and errno; what was held stays.
  absl::Status TakePort();
  // The same for the generation after the last one; keeps a port that the user gave. An error is
  // logged.
  void RenewPort();
  // 0 = none could be had.
  uint16_t port() const { return port_.port; }
  // The port's socket, for processes that must not keep it; -1 = none.
  int socket() const { return port_.socket.get(); }

  // A generation begins: ends the store of the last one, and serves an empty one when rank 0 is on
  // this node and the plan has the agent do it; on other nodes tries whether it can be reached, and
  // tells the user when not. Errors: UNAVAILABLE: the port isn't ours.
  absl::Status Begin(EventLoop* loop, const rendezvous::Assignment& assignment);
  // The store of the current generation is gone.
  void End();

 private:
  void Probe(EventLoop* loop, const rendezvous::Assignment& assignment);

  const LaunchPlan* plan_;
  ReservedPort port_;
  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<StoreProbe> probe_;
};

// Whether this node has rank 0 for sure, before anybody has given out ranks.
bool IsRankZero(const LaunchPlan& plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORES_MASTER_STORE_H_
