#ifndef DDPRUN_RENDEZVOUS_SERVER_CONNECTION_SENDER_H_
#define DDPRUN_RENDEZVOUS_SERVER_CONNECTION_SENDER_H_

#include <cstddef>
#include <deque>
#include <memory>
#include <vector>

#include "base/event_loop.h"
#include "base/fd.h"

namespace ddprun::rendezvous {

// Passes accepted connections to the agent whose child this service is, each in a packet of its own
// (base/packet.h). An agent that doesn't read for a while gets them later, in their order.
// Threads: the loop's.
class ConnectionSender {
 public:
  // `socket` stays the caller's. It and the loop outlive this.
  ConnectionSender(EventLoop* loop, int socket);

  void Send(Fd connection);

 private:
  void SendWaiting();

  EventLoop* const loop_;
  const int socket_;
  const size_t waiting_max_;
  std::deque<std::vector<Fd>> waiting_;  // of one connection each
  std::unique_ptr<FdWatch> writable_;    // null while none waits
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_SERVER_CONNECTION_SENDER_H_
