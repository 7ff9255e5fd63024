#ifndef DDPRUN_LAUNCHER_STORES_MASTER_STORE_H_
#define DDPRUN_LAUNCHER_STORES_MASTER_STORE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

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

  // Reserves a port: the one that the user gave, else any, another one than what is held. Where the
  // store is at the endpoint, the service has the port, and passes the store's connections on.
  // Errors: UNAVAILABLE with the port and errno; what was held stays.
  absl::Status TakePort();
  // The same for the generation after the last one; keeps a port that the user gave. An error is
  // logged.
  void RenewPort();
  // 0 = none could be had.
  uint16_t port() const { return port_.port; }
  // The port's socket, for processes that must not keep it; -1 = none.
  int socket() const { return port_.socket.get(); }
  // Where the service sends the store's connections to (rendezvous/server/connection_sender.h);
  // -1 = the agent listens by itself.
  int service_socket() const { return to_store_.get(); }

  // A generation begins: ends the store of the last one, and serves an empty one if rank 0 is on
  // this node and the plan has the agent serve it. Then connects to it at the address and port that
  // workers get, as a worker would, and prints a warning if that fails.
  // `on_ready`: workers may start. Called once, at the latest 1.5 s from now, unless this object or
  // the generation ends before; at once where nothing is to be tried first.
  // Errors: UNAVAILABLE: the port isn't ours; on_ready isn't called.
  absl::Status Begin(EventLoop* loop, const rendezvous::Assignment& assignment,
                     std::function<void()> on_ready);
  // The store of the current generation is gone.
  void End();
  // Hears of the clients of stores that begin from now on (TcpStoreServer::Options).
  void set_on_client(std::function<void(const StoreClient&)> on_client) {
    on_client_ = std::move(on_client);
  }

 private:
  absl::Status Serve(EventLoop* loop, const rendezvous::Assignment& assignment);
  void ProbeOwn(EventLoop* loop, const rendezvous::Assignment& assignment,
                std::function<void()> on_ready);
  void ProbeOther(EventLoop* loop, const rendezvous::Assignment& assignment);

  const LaunchPlan* plan_;
  ReservedPort port_;  // at the endpoint: the other end of to_store_, and the service's port
  Fd to_store_;
  std::unique_ptr<TcpStoreServer> server_;
  std::unique_ptr<StoreProbe> probe_;
  std::function<void(const StoreClient&)> on_client_;
};

// Ports that the user gave, at which a process of the job is to listen: none of them may be taken
// as any free one. Those of other machines do no harm.
std::vector<uint16_t> GivenPorts(const LaunchPlan& plan);

// Whether this node has rank 0 for sure, before anybody has given out ranks.
bool IsRankZero(const LaunchPlan& plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORES_MASTER_STORE_H_
