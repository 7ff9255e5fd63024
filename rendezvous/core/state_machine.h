#ifndef DDPRUN_RENDEZVOUS_CORE_STATE_MACHINE_H_
#define DDPRUN_RENDEZVOUS_CORE_STATE_MACHINE_H_

#include <deque>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/instant.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/core/message.h"
#include "rendezvous/core/types.h"

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

// ------------------------------------------------------------- view: what status calls show

struct NodeView {
  NodeId node_id;
  NodeInfo info;
  std::string state;  // proto NodeStatus.state
  std::optional<uint32_t> group_rank;
  absl::Duration silent;
  // Words of its workers' pages (docs/PROGRESS.md) in the live generation, by local rank; empty =
  // none runs, or it hasn't told.
  std::vector<uint64_t> progress;
  absl::Duration step_time;  // as in Renewal
  absl::Duration progress_age;
  uint32_t base_rank = 0;  // with a group rank: global rank of its local rank 0
  std::vector<GpuUse> gpus;
  absl::Duration gpus_age;
  std::optional<WarmUse> warm;  // as in Renewal
};

// A machine that was drained, and may not join (proto DrainedNode).
struct DrainedNode {
  NodeId node_id;
  std::string hostname;
  std::string address;
  std::string reason;
};

struct JobView {
  JobSpec spec;
  std::string phase;  // proto JobStatus.phase
  std::string reason;
  Generation generation;
  uint32_t restart_count = 0;
  uint32_t restarts_charged = 0;     // of them, those that were not given back
  absl::Duration age;                // since the first Join
  std::vector<NodeView> nodes;       // by group rank, then join order
  std::vector<DrainedNode> drained;  // the latest last
  TimeSpent spent;                   // since the first Join
  uint64_t recoveries = 0;           // how often the service was started again
  std::string record;                // where it is kept, for people; the shell's
  std::string record_lost;           // why the job depends on its service; "" = it doesn't
};

struct GenerationView {
  Generation generation;
  uint32_t world_size = 0;
  uint32_t nodes = 0;
  std::string reason;  // as in Assignment
  std::string rule;
  Instant began;
  Instant ended = Instant::Infinite();  // when it was decided that it ends
  std::string end_reason = {};
  std::optional<uint64_t> first_step = {};  // that its workers were seen at; nullopt = none marks
  std::optional<uint64_t> last_step = {};
};

// Decides membership, ranks, restarts and the verdict of one job: rules R1-R9, R11 and R12 of
// docs/PROTOCOL.md. Pure: no clock, I/O, thread, log or randomness; the same inputs give the same
// effects, byte for byte.
//
//   forming ──(enough nodes)──► running ──(failure, loss, leave, growth)──► closing
//      ▲                           │                                          │
//      │                           └──(all ranks succeeded)──► ended ◄────────┤ (budget spent,
//      stop) └──────────────(every member answered: next round)◄───────────────────┘
//
// Threads: one at a time; the shell's loop.
class StateMachine {
 public:
  // `term` names this life of the service; `token` is the job's secret, "" for none. The job's spec
  // is that of the first Join.
  // Params: keeps: there is a journal; else no Persist comes.
  StateMachine(Term term, std::string token, bool keeps = false);
  // Goes on with the job of a service that has ended. Params: elapsed: since the record was taken,
  // as far as it is known. Requires: the record is whole (rendezvous/journal checks it), and its
  // `life` counts this service, too.
  StateMachine(Instant now, JobRecord record, absl::Duration elapsed, std::string token);
  ~StateMachine();
  StateMachine(const StateMachine&) = delete;
  StateMachine& operator=(const StateMachine&) = delete;

  // Takes one event at `now` and returns what to do, in this order. `now` never goes back. Events
  // of unknown or superseded streams are ignored with a Note; nothing from the wire aborts (R9).
  std::vector<Effect> Step(Instant now, const Event& event);

  // When Step(TimerDue) is wanted next; infinite = not at all.
  Instant NextDeadline() const;

  // What of the job must be written for all Persists until now; O(n). What it settles is confirmed
  // to the agents by the next PersistDone.
  JobRecord TakeRecord(Instant now);

  JobView View(Instant now) const;
  // The last generations, oldest first; the live one is among them.
  const std::deque<GenerationView>& generations() const;

  // Aborts with the state printed when an invariant is broken: ranks 0..world-1 exactly, contiguous
  // by node; one live generation; each member in one state; deadlines only where something waits.
  void CheckInvariants() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_STATE_MACHINE_H_
