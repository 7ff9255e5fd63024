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
#include "rendezvous/core/service_message.h"

namespace ddprun::launcher {

// This node's master port, reserved for the next generation, and the store on it while rank 0 is
// here (docs/PROTOCOL.md, R11 and W9). Threads: the loop's.
class MasterStore {
 public:
  // Without a port. `plan` outlives it.
  explicit MasterStore(const LaunchPlan* plan) : plan_(plan) {}

  // Reserves a port: the user's, else any other than the current one. If the store is at the
  // endpoint, the service has the port, and passes the store's connections on. Errors: UNAVAILABLE
  // with the port and errno; the current port stays.
  absl::Status TakePort();
  // Reserves a port for the next generation; keeps a port that the user gave. Logs an error.
  void RenewPort();
  // The reserved port; 0 = none.
  uint16_t port() const { return port_.port; }
  // The port's socket, which child processes must not keep; -1 = none.
  int socket() const { return port_.socket.get(); }
  // The socket over which the service sends the store's connections
  // (rendezvous/server/front_door.h); -1 = the agent listens by itself.
  int service_socket() const { return to_store_.get(); }

  // A generation begins: ends the store of the last one, and serves an empty one if rank 0 is on
  // this node and the agent is to serve it. Then connects to the store at the workers' address and
  // port, as a worker would, and prints a warning if that fails. `on_ready`: workers may start.
  // Called once, within 1.5 s, unless this object or the generation ends before; at once if there
  // is nothing to try. Errors: UNAVAILABLE — the port isn't ours; on_ready isn't called.
  absl::Status Begin(EventLoop* loop, const rendezvous::Assignment& assignment,
                     std::function<void()> on_ready);
  // The store of the current generation is gone.
  void End();
  // Called for each client of stores that begin from now on (TcpStoreServer::Options).
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

// Ports that the user gave for processes of the job, some of them perhaps on other machines. They
// must not be chosen as a free port.
std::vector<uint16_t> GivenPorts(const LaunchPlan& plan);

// Whether this node surely gets rank 0, before ranks are assigned.
bool IsRankZero(const LaunchPlan& plan);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORES_MASTER_STORE_H_
