#ifndef DDPRUN_RENDEZVOUS_SERVER_CONNECTION_SENDER_H_
#define DDPRUN_RENDEZVOUS_SERVER_CONNECTION_SENDER_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "base/event_loop.h"
#include "base/fd.h"

namespace ddprun::rendezvous {

// Passes accepted connections to this service's agent, each in a packet of its own (base/packet.h).
// If the agent doesn't read for a while, connections wait in their order. Threads: the loop's.
class ConnectionSender {
 public:
  // Requires: `socket`, which stays the caller's, and the loop outlive the sender.
  ConnectionSender(EventLoop* loop, int socket);

  void Send(Fd connection);

 private:
  void SendWaiting();

  EventLoop* const loop_;
  const int socket_;
  const size_t waiting_max_;
  std::deque<std::vector<Fd>> waiting_;  // one connection each
  std::unique_ptr<FdWatch> writable_;    // null unless a connection waits
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CONNECTION_SENDER_H_
