#ifndef DDPRUN_LAUNCHER_SIDE_CHANNELS_HEALTH_SERVER_H_
#define DDPRUN_LAUNCHER_SIDE_CHANNELS_HEALTH_SERVER_H_

#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/fd.h"

namespace ddprun::launcher {

// Serves GET /healthz for monitors of this agent (TORCHELASTIC_HEALTH_CHECK_PORT). Requests are
// answered on the agent's own loop, so an answer proves that the loop runs. Listens on all
// interfaces, because probes come from outside the container.
//
// Clients are bounded: 64 at a time (a further one replaces the oldest), 5 s and 8 KiB each.
// Threads: the loop's.
class HealthServer {
 public:
  // `body`: returns the JSON text of an answer; called for each one.
  // Errors: of socket(2), bind(2) and listen(2), with the port.
  static absl::StatusOr<std::unique_ptr<HealthServer>> Create(EventLoop* loop, uint16_t port,
                                                              std::function<std::string()> body);
  ~HealthServer();

  uint16_t port() const { return port_; }

 private:
  struct Client;

  HealthServer(EventLoop* loop, Fd listener, uint16_t port, std::function<std::string()> body);
  void Accept();
  void Read(std::list<Client>::iterator client);

  EventLoop* loop_;
  Fd listener_;
  uint16_t port_;
  std::function<std::string()> body_;
  std::list<Client> clients_;  // oldest first
  std::unique_ptr<FdWatch> acceptable_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SIDE_CHANNELS_HEALTH_SERVER_H_
