#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_UNCONFIRMED_EVENTS_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_UNCONFIRMED_EVENTS_H_

#include <cstdint>
#include <deque>
#include <string>

#include "rendezvous/core/agent_message.h"

namespace ddprun::launcher {

// The agent's events that the service has not confirmed yet, so that none is lost or processed
// twice over a reconnect (R6). Small by nature: an agent has a handful of events in a generation,
// and a new generation is assigned only after the service has processed those of the last one.
// Pure; one thread.
class UnconfirmedEvents {
 public:
  // Gives the message the next sequence number and keeps it.
  const rendezvous::AgentMessage& Add(rendezvous::AgentMessage message);
  // The service has processed everything up to `sequence`. One that was never given proves nothing:
  // all is kept, and said again.
  void Confirm(uint64_t sequence);
  // The messages to send again on a new stream, in order.
  const std::deque<rendezvous::AgentMessage>& pending() const { return pending_; }

  // Which invariant of the fields below is broken; "" = none.
  std::string BrokenInvariant() const;

 private:
  uint64_t last_sequence_ = 0;  // given; 0 = none was
  // Messages in sequence: their numbers have no gap and end with last_sequence_.
  std::deque<rendezvous::AgentMessage> pending_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_UNCONFIRMED_EVENTS_H_
