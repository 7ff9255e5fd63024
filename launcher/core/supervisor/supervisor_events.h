#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_EVENTS_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_EVENTS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "launcher/core/supervisor/worker_group.h"
#include "rendezvous/core/message.h"
#include "rendezvous/core/types.h"

// What goes into a Supervisor and what comes out of it.
namespace ddprun::launcher {

// ------------------------------------------------------------- events: what happened

// Where the service is and how others reach this node was found out. Comes once, before the first
// StreamOpened.
struct EndpointFound {
  std::string node_address;
  std::string store_address;    // of the agent's store for other nodes; "" = none
  bool hosts_service = false;   // the service is a child of this agent
  bool hosts_endpoint = false;  // the endpoint is this machine's: its address, or the service
  bool is_strange = false;      // this node serves at it, and has no such address
  bool is_loopback = false;     // no other machine can reach it
  // Another process of this machine has its port: an agent with the job's service, or a stranger.
  bool port_is_taken = false;
  std::string port_advice;  // if it is taken: how to choose another, with what joins it; or ""
};

struct StreamOpened {};

struct ServiceMessageReceived {
  rendezvous::ServiceMessage message;
};

// A probe of the service came, and was answered, over a connection for heartbeats.
struct HeartbeatHeard {};

struct ServiceStreamClosed {
  absl::Status status;
  bool will_retry = false;
};

// The service, a child of this agent, ended. `how`: "killed by SIGKILL".
struct ServiceExited {
  std::string how;
};

struct WorkerStarted {
  rendezvous::Generation generation;
  uint32_t local_rank = 0;
  uint32_t pid = 0;
};

struct WorkerEnded {
  rendezvous::Generation generation;
  WorkerEnd end;
};

// A worker waits for the end of its generation, to rejoin the next one as the process that it is;
// or it has done its work, and no longer can.
struct WorkerCanRejoin {
  rendezvous::Generation generation;
  uint32_t local_rank = 0;
  bool can = true;
};

// Such a worker has let go of its generation: it has no process groups of it any more, and asks for
// its next place.
struct WorkerLetGo {
  rendezvous::Generation generation;
  uint32_t local_rank = 0;
};

// A worker was stopped by a signal that isn't ours (SIGSTOP, SIGTSTP).
struct WorkerSuspended {
  rendezvous::Generation generation;
  uint32_t local_rank = 0;
  uint32_t pid = 0;
  int signal = 0;
};

// A look at the workers is done: some are suspect or no longer are, or the service asked.
struct ProgressFound {
  rendezvous::Generation generation;
  rendezvous::HangReport report;
};

// A look at the workers on their way to a stop step is done.
struct StopStepLooked {
  rendezvous::Generation generation;
  uint32_t round = 0;  // of the LookAtStopStep
  rendezvous::StopLook look;
  bool all_stopped = false;  // all that live are at the committed step, and save
};

// No process of the generation is left but those that were spared; `master_port` is reserved for
// the next one (0 = none), and `step` is the highest that its workers marked (nullopt = none did).
struct GroupEmpty {
  rendezvous::Generation generation;
  uint32_t master_port = 0;
  std::optional<uint64_t> step;
  uint64_t stopped_at = 0;  // the step at which workers stopped as committed; 0 = none did
  std::optional<rendezvous::NodeTime> time = {};  // how they spent it
};

// The keeper died, and the workers with it.
struct KeeperLost {
  std::string why;
};

struct SignalReceived {
  int number = 0;
};

struct TimerFired {};

using SupervisorEvent =
    std::variant<EndpointFound, StreamOpened, ServiceMessageReceived, HeartbeatHeard,
                 ServiceStreamClosed, ServiceExited, WorkerStarted, WorkerEnded, WorkerCanRejoin,
                 WorkerLetGo, WorkerSuspended, ProgressFound, StopStepLooked, GroupEmpty,
                 KeeperLost, SignalReceived, TimerFired>;

// ------------------------------------------------------------- effects: what the shell must do

// Send on the current stream; lost without one (the supervisor sends again after a reconnect).
struct SendMessage {
  rendezvous::AgentMessage message;
};

// Half-close the stream and don't reconnect.
struct FinishStream {};

// Start all workers of this node, but for those that are kept: these get the assignment as the
// processes that they are. WorkerStarted comes for all.
struct SpawnGroup {
  rendezvous::Assignment assignment;
  std::vector<uint32_t> kept = {};  // local ranks
};

struct SignalGroup {
  rendezvous::Generation generation;
  int signal = 0;
  bool stops = true;  // they are to end of it
  // Local ranks that don't get it. If it stops the others, these are told that their generation is
  // over, and why.
  std::vector<uint32_t> spared = {};
  std::string why = {};
};

// Take two samples of the workers, and answer with ProgressFound.
struct LookAtWorkers {
  rendezvous::Generation generation;
  absl::Duration sample;
};

// These workers hold up the others. With `end`, for each that still stands where it stood feed
// WorkerEnded with `hung`, which has the others killed too, unless the user wants a report only.
// Without, say so.
struct HandleHungWorkers {
  rendezvous::Generation generation;
  std::vector<uint32_t> local_ranks;
  std::string evidence;
  bool end = true;
};

// Hold workers that reach `step` (0 = none) from here on, see how far all are, and answer with
// StopStepLooked. Round 0: only look, whether they ask or are at the committed step; the answer
// comes at once.
struct LookAtStopStep {
  rendezvous::Generation generation;
  uint32_t round = 0;
  uint64_t step = 0;
};

// Let the workers that are held save and end.
struct CommitStopStep {
  rendezvous::Generation generation;
  uint64_t step = 0;
};

// Kill all that is left of the generation, but for the workers that are spared, and what descends
// from them, and for what ended workers have left and has time to end; GroupEmpty follows. Comes
// again when spared ones are to be killed after all.
struct SweepGroup {
  rendezvous::Generation generation;
  std::vector<uint32_t> spared = {};  // local ranks
  std::string why = {};               // the generation ends, for workers that ask the agent
  enum class After { kSuccess, kStop, kSecondSignal };
  After after = After::kStop;  // what the workers have left has time for
};

// The generation is over for all nodes: drop its stores. Comes once for each, unless the next
// begins or the agent exits first.
struct EndGeneration {
  rendezvous::Generation generation;
  std::string why;  // for workers that ask the agent
};

// A line for the user. kInfo is printed on request only.
struct NotifyUser {
  enum class Level { kInfo, kWarning, kError };
  Level level = Level::kInfo;
  std::string text;
};

// A fact for the timeline.
struct Record {
  std::string event;
  std::vector<std::pair<std::string, std::string>> fields;
};

// The agent is done: report how the job ended, then exit.
struct Exit {
  int status = 0;
  std::optional<rendezvous::Verdict> verdict;
  int signal = 0;   // that made this agent leave; 0 = none
  std::string why;  // why it ends without a verdict; "" = a verdict or a signal says it
  // Workers of this node in the last generation that ended because we stopped them.
  std::vector<rendezvous::WorkerFailure> stopped;
};

using SupervisorEffect = std::variant<SendMessage, FinishStream, SpawnGroup, SignalGroup,
                                      SweepGroup, EndGeneration, LookAtWorkers, HandleHungWorkers,
                                      LookAtStopStep, CommitStopStep, NotifyUser, Record, Exit>;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_EVENTS_H_
