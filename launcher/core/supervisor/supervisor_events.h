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
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/verdict.h"
#include "rendezvous/core/worker_failure.h"
#include "rendezvous/core/worker_progress.h"

// The events and effects of a Supervisor.
namespace ddprun::launcher {

// ------------------------------------------------------------- events: what happened

// The service's place and this node's addresses are known. Comes once, before the first
// StreamOpened.
struct EndpointFound {
  std::string node_address;
  std::string store_address;    // of the agent's store for other nodes; "" = none
  bool hosts_service = false;   // the service is a child of this agent
  bool hosts_endpoint = false;  // this machine has the endpoint's address, or runs the service
  bool is_strange = false;      // this node serves the endpoint, but hasn't its address
  bool is_loopback = false;     // no other machine can reach the endpoint
  // Another process of this machine has the endpoint's port: the job's service, or anything else.
  bool port_is_taken = false;
  std::string port_advice;  // if the port is taken: how to choose another one, punctuation first
};

struct StreamOpened {};

struct ServiceMessageReceived {
  rendezvous::ServiceMessage message;
};

// A probe of the service came over the connection for heartbeats, and was answered.
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

// A worker waits for the end of its generation, and its process can rejoin the next one; or it has
// done its work and no longer can.
struct WorkerCanRejoin {
  rendezvous::Generation generation;
  uint32_t local_rank = 0;
  bool can = true;
  bool same_place = false;  // only with the same rank among as many workers
};

// Such a worker has let go of (released) its generation: it has destroyed its process groups and
// asks for its next rank.
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

// The hang detector has a report: workers are suspect or no longer are, or the service asked.
struct ProgressFound {
  rendezvous::Generation generation;
  rendezvous::HangReport report;
};

// A look at the workers on their way to a stop step is done.
struct StopStepLooked {
  rendezvous::Generation generation;
  uint32_t round = 0;  // of the LookAtStopStep
  rendezvous::StopLook look;
  bool all_stopped = false;  // all live workers are at the committed step, and save
};

// No process of the generation is left, except spared workers and leftovers.
struct GroupEmpty {
  rendezvous::Generation generation;
  uint32_t master_port = 0;      // reserved for the next generation; 0 = none
  std::optional<uint64_t> step;  // the highest that the workers marked; nullopt = none did
  uint64_t stopped_at = 0;       // the committed step at which workers stopped; 0 = none did
  std::optional<rendezvous::NodeTime> time = {};  // how the workers spent the generation
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

// Send on the current stream. Without a stream the message is lost, and the supervisor sends it
// again after a reconnect.
struct SendMessage {
  rendezvous::AgentMessage message;
};

// Half-close the stream and don't reconnect.
struct FinishStream {};

// Start the workers of this node. Those that are kept go on in their processes and get the
// assignment. WorkerStarted follows for all.
struct SpawnGroup {
  rendezvous::Assignment assignment;
  std::vector<uint32_t> kept = {};  // local ranks
};

struct SignalGroup {
  rendezvous::Generation generation;
  int signal = 0;
  bool stops = true;  // the signal is to end the workers
  // Local ranks that don't get the signal. If it stops the others, these are notified that their
  // generation is over, and why.
  std::vector<uint32_t> spared = {};
  std::string why = {};
};

// Take two samples of the workers, and answer with ProgressFound.
struct LookAtWorkers {
  rendezvous::Generation generation;
  absl::Duration sample;
};

// These workers hold up the others. With `end`: for each that has made no progress since, report
// WorkerEnded with `hung`, which kills the others, too, unless the user wants only a report
// (--on_hang report). Without `end`: notify the user.
struct HandleHungWorkers {
  rendezvous::Generation generation;
  std::vector<uint32_t> local_ranks;
  std::string evidence;
  bool end = true;
};

// Hold workers that reach `step` (0 = none) from now on, and answer with StopStepLooked, which has
// how far all workers are. Round 0: hold nobody; the answer comes at once and says whether the
// workers want a stop step or are at the committed one.
struct LookAtStopStep {
  rendezvous::Generation generation;
  uint32_t round = 0;
  uint64_t step = 0;
};

// Let the held workers save and end.
struct CommitStopStep {
  rendezvous::Generation generation;
  uint64_t step = 0;
};

// Kill all processes of the generation except spared workers with their descendants, and leftovers
// that have time to end; GroupEmpty follows. Comes again if spared workers are to be killed after
// all.
struct SweepGroup {
  rendezvous::Generation generation;
  std::vector<uint32_t> spared = {};  // local ranks
  std::string why = {};               // the generation ends, for workers that ask the agent
  enum class After { kSuccess, kStop, kSecondSignal };
  After after = After::kStop;  // decides how much time leftovers have
};

// The generation is over for all nodes: drop its stores. Comes once for each generation, unless the
// next one begins or the agent exits first.
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
  int signal = 0;   // the signal that made this agent leave; 0 = none
  std::string why;  // why the agent ends without a verdict; "" = a verdict or a signal says why
  // Workers of this node in the last generation that ended because we stopped them.
  std::vector<rendezvous::WorkerFailure> stopped;
};

using SupervisorEffect = std::variant<SendMessage, FinishStream, SpawnGroup, SignalGroup,
                                      SweepGroup, EndGeneration, LookAtWorkers, HandleHungWorkers,
                                      LookAtStopStep, CommitStopStep, NotifyUser, Record, Exit>;

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_EVENTS_H_
