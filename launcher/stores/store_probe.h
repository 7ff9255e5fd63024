#ifndef DDPRUN_LAUNCHER_STORES_STORE_PROBE_H_
#define DDPRUN_LAUNCHER_STORES_STORE_PROBE_H_

#include <sys/socket.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "base/fd.h"

namespace ddprun::launcher {

// Tries once to reach the workers' store at the workers' address, so that a firewall or a wrong
// address is reported while the workers still wait for their library's own timeout (minutes).
//
// Threads: the loop's. May be destroyed at any time, even from its callback.
class StoreProbe {
 public:
  // How far to go: to a connection, or to the answer to a request of TCPStore's protocol.
  enum class Until { kConnected, kAnswered };

  // Connects to host:port and hangs up. `on_done` is called once, with the error of the resolver,
  // connect(2) or recv(2), or with a time-out after `bound`; "" = the store was reached.
  StoreProbe(EventLoop* loop, const std::string& host, uint16_t port, absl::Duration bound,
             Until until, std::function<void(std::string why)> on_done);
  ~StoreProbe();
  StoreProbe(const StoreProbe&) = delete;
  StoreProbe& operator=(const StoreProbe&) = delete;

 private:
  struct Resolution;
  struct Address {
    sockaddr_storage bytes{};
    socklen_t length = 0;
  };
  void Resolve(const std::string& host, uint16_t port);
  void TryNext(int error);
  void OnConnected();
  void OnAnswer();
  void End(const std::string& why);

  EventLoop* const loop_;
  const absl::Duration bound_;
  const Until until_;
  std::function<void(std::string)> on_done_;
  Timer timer_;
  Resolution* resolution_ = nullptr;  // in flight; owned by libuv
  std::vector<Address> addresses_;    // still to be tried, the next one last
  Fd socket_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_STORES_STORE_PROBE_H_
