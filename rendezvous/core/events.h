#ifndef DDPRUN_RENDEZVOUS_CORE_EVENTS_H_
#define DDPRUN_RENDEZVOUS_CORE_EVENTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/strong.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/verdict.h"

// The events that a job handles, and the effects that its shell carries out.
namespace ddprun::rendezvous {

// One stream of one agent process. Chosen by the shell, unique for the life of the service.
using StreamKey = Strong<struct StreamKeyTag, uint64_t>;

// ------------------------------------------------------------- events: what happened

// A validated message arrived on a stream. The first one on each stream is a Join.
struct MessageReceived {
  StreamKey stream;
  AgentMessage message;
};

// The stream has closed. finished: the agent closed it after it had read everything that it needs;
// false: the stream was reset, so the agent may have missed the last messages.
struct StreamClosed {
  StreamKey stream;
  bool finished = false;
};

// A control call asks to end the job.
struct StopRequested {
  std::string reason;
};

// A control call asks a node to leave, or (undo) lets its machine join again.
struct DrainRequested {
  NodeId node;  // as in JobView
  std::string reason;
  bool undo = false;
};

// NextDeadline() has come.
struct TimerDue {};

// The record that was taken last is durable, or couldn't be made so.
struct PersistDone {
  absl::Status status;
};

using Event = std::variant<MessageReceived, StreamClosed, StopRequested, DrainRequested, TimerDue,
                           PersistDone>;

// ------------------------------------------------------------- effects: what the shell must do

// Send the message on the stream. A refused Join gets a CloseStream with the status instead.
struct Send {
  StreamKey stream;
  SharedMessage message;
};

// End the stream with the status; OK is an orderly end.
struct CloseStream {
  StreamKey stream;
  absl::Status status;
};

// Write the record before anything is sent, because every decision must outlive the service before
// a node hears of it (R10). Always the first effect of its list. The shell takes the record and
// writes it; this list's later effects, and all later lists, wait until PersistDone. One record
// serves all Persists until it is taken.
struct Persist {};

// A fact for the timeline and the log: snake_case event name, ordered key-value pairs.
struct Note {
  std::string event;
  std::vector<std::pair<std::string, std::string>> fields;
};

// The job is over, and every reachable agent has its verdict: forget the job.
struct Ended {
  Outcome outcome = Outcome::kFailed;
};

using Effect = std::variant<Send, CloseStream, Persist, Note, Ended>;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_EVENTS_H_
