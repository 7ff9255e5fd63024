#ifndef DDPRUN_RENDEZVOUS_CORE_EVENTS_H_
#define DDPRUN_RENDEZVOUS_CORE_EVENTS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/strong.h"
#include "rendezvous/core/message.h"
#include "rendezvous/core/types.h"

// What a job hears of, and what it has its shell do.
namespace ddprun::rendezvous {

// One stream of one agent process, as the shell tells them apart. Chosen by the shell, unique for
// the life of the service.
using StreamKey = Strong<struct StreamKeyTag, uint64_t>;

// ------------------------------------------------------------- events: what happened

// A validated message arrived on a stream. The first on each stream is a Join.
struct MessageReceived {
  StreamKey stream;
  AgentMessage message;
};

// The stream is gone. finished: the agent closed it, which it does when it has read all that it
// needs; else it was reset, and the agent may not know what was sent last.
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
  NodeId node;  // as the view names it
  std::string reason;
  bool undo = false;
};

// NextDeadline() has come.
struct TimerDue {};

// The record that was taken last is durable, or could not be made so.
struct PersistDone {
  absl::Status status;
};

using Event = std::variant<MessageReceived, StreamClosed, StopRequested, DrainRequested, TimerDue,
                           PersistDone>;

// ------------------------------------------------------------- effects: what the shell must do

// Send on the stream. After a refused Join: CloseStream with the status instead.
struct Send {
  StreamKey stream;
  SharedMessage message;
};

// End the stream with the status; OK is an orderly end.
struct CloseStream {
  StreamKey stream;
  absl::Status status;
};

// What was decided must outlive the service before anybody hears of it (R10): the first effect of
// its list. The shell takes the record and writes it; the effects after it, and all later ones,
// wait until PersistDone. One record is enough for all that were to be written when it is taken.
struct Persist {};

// A fact for the timeline and the log: snake_case event name, ordered key-value pairs.
struct Note {
  std::string event;
  std::vector<std::pair<std::string, std::string>> fields;
};

// The job is over and every stream that could be told was told: forget it.
struct Ended {
  Outcome outcome = Outcome::kFailed;
};

using Effect = std::variant<Send, CloseStream, Persist, Note, Ended>;

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_EVENTS_H_
