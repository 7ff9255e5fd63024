#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_SERVICE_STREAM_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_SERVICE_STREAM_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "base/instant.h"
#include "launcher/core/supervisor/supervisor_events.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/node_info.h"
#include "rendezvous/core/service_message.h"

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

// How an agent identifies itself to the service.
struct AgentIdentity {
  rendezvous::NodeId node_id;
  rendezvous::Incarnation incarnation;
  rendezvous::NodeInfo node;  // the part that is known at the start
  std::string token;          // of the job; "" = none
  uint32_t protocol_major = 0;
};

// The messages of this agent to the service: numbers streams, fills in the agent's identity, and
// keeps events that the service may not have processed (R6).
//
//   closed ─Open─► open ─OnWelcome─► welcomed
//     ▲              │ Close             │
//     └──────────────┴───────────────────┘
//
// Only the Join is sent before the Welcome; events that come earlier wait for it.
// Pure; one thread.
class ServiceStream {
 public:
  ServiceStream(AgentIdentity identity, rendezvous::JobSpec job);

  // The address under which others reach this node is known.
  void OnEndpoint(const EndpointFound& found);
  // The port for the next generation's store; 0 = none.
  void ReserveMasterPort(uint32_t port) { identity_.node.master_port = port; }

  // A new stream is open. Returns: the Join to send on it. `generation` is ignored in kIdle.
  rendezvous::AgentMessage Open(Instant now, rendezvous::GroupState state,
                                rendezvous::Generation generation);
  // Returns: the messages to send again, in order.
  std::vector<rendezvous::AgentMessage> OnWelcome(Instant now, const rendezvous::Welcome& welcome);
  // Returns: the answer.
  rendezvous::AgentMessage OnProbe(const rendezvous::Probe& probe);
  void Close();

  // Keeps an event until the service has processed it. Returns: the message, if it can go now.
  std::optional<rendezvous::AgentMessage> Add(rendezvous::Generation generation,
                                              decltype(rendezvous::AgentMessage::body) body);

  bool is_open() const { return state_ != State::kClosed; }
  bool is_welcomed() const { return state_ == State::kWelcomed; }
  // The agent was welcomed once, on this stream or another.
  bool has_joined() const { return term_ != rendezvous::Term(); }
  rendezvous::Term term() const { return term_; }
  const rendezvous::NodeId& node_id() const { return identity_.node_id; }
  const rendezvous::NodeInfo& node() const { return identity_.node; }
  const rendezvous::JobSpec& job() const { return job_; }

  // Which invariant of the fields below is broken; "" = none.
  std::string BrokenInvariant() const;

 private:
  enum class State { kClosed, kOpen, kWelcomed };

  rendezvous::AgentMessage Message(decltype(rendezvous::AgentMessage::body) body) const;

  AgentIdentity identity_;
  rendezvous::JobSpec job_;
  State state_ = State::kClosed;     // kWelcomed: has_joined()
  rendezvous::StreamNumber number_;  // of the newest stream; > 0 unless there never was one
  rendezvous::Term term_;            // of the newest Welcome; never back to 0
  Instant job_began_;                // an upper bound, from the Welcomes of that term
  UnconfirmedEvents unconfirmed_;    // sequence numbers begin at 1 and have no gap
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_SERVICE_STREAM_H_
