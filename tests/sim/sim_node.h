#ifndef DDPRUN_TESTS_SIM_SIM_NODE_H_
#define DDPRUN_TESTS_SIM_SIM_NODE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/rng.h"
#include "launcher/core/supervisor/supervisor.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/sim_network.h"

namespace ddprun::sim {

// How workers of a simulated job behave.
struct WorkerHabits {
  // When a worker that nobody disturbs ends with 0, counted from its start.
  std::function<absl::Duration()> lifetime;
  // Percent of stops in which TERM is ignored until the sweep.
  uint32_t ignores_term_percent = 10;
  // Percent of sweeps that leave something behind for 20 s, while there are faults: afterwards, one
  // generation after the other could end by it (seed 10009407).
  uint32_t unclean_percent = 0;
  bool healed = false;
  // Whether the program asks for stop steps, and how long its steps take.
  bool asks_for_stop_steps = false;
  absl::Duration step_time = absl::Milliseconds(300);
};

// One machine: the real agent core (launcher/core), with workers that are entries of a table. As
// with a real keeper, the workers die a little after their agent.
class SimNode {
 public:
  // What a node reports.
  struct Callbacks {
    // A worker ended: by itself with 0, or not well; at a stop step it is not done with its work.
    std::function<void(int node, rendezvous::Generation, bool ok, bool at_stop)> worker_ended;
    std::function<void(int node, const rendezvous::Assignment&)> spawned;
    // A worker saves at a stop step.
    std::function<void(int node, rendezvous::Generation, uint64_t step)> stopped;
    std::function<void(int node, const launcher::Exit&)> exited;
    // Whether a worker of the generation hangs, on any node: then all of them stand still.
    std::function<bool(rendezvous::Generation)> job_hangs;
    // A worker is ended because it seems to hang. Params: hung: whether it does.
    std::function<void(int node, bool hung)> judged;
    // An invariant of the agent's core doesn't hold.
    std::function<void(const std::string&)> broken;
    std::function<void(const std::string&)> trace;  // empty function = no trace
  };

  SimNode(int number, EventQueue* queue, Rng* rng, SimNetwork* network,
          launcher::SupervisorConfig config, const WorkerHabits* habits, Callbacks callbacks);

  // A fresh agent process, unless one runs or the workers of the last one do.
  void StartAgent();
  // kill -9 of the agent.
  void CrashAgent();
  // The machine loses its power: nobody resets the stream, and no worker is left.
  void LosePower();
  // Makes the service a child of this agent. Called before the agent starts.
  void HostService() { hosts_service_ = true; }
  // Sets the node's monotonic clock: its time when the simulation's is 0, and its speed in
  // thousandths.
  void SetClock(absl::Duration at_zero, int64_t permille) {
    drifts_ = true;
    clock_at_zero_ = at_zero;
    clock_permille_ = permille;
  }
  // SIGSTOP and SIGCONT of the agent.
  void SetFrozen(bool frozen);
  void SignalAgent(int signal_number);
  // A worker dies by itself; nothing happens without one.
  void FailWorker(int signal_number, const std::string& message);
  // Params: unnoticed: for how long the agent doesn't know.
  void BreakStream(absl::Duration unnoticed = absl::ZeroDuration());
  // Sends its last event once more, as if the network had duplicated it.
  void SayAgain();
  // A worker stops making progress; nothing happens without one.
  void HangWorker();
  // This node's workers wait for one that hangs: the agent becomes suspicious, and says so until no
  // worker hangs.
  void BecomeSuspicious(rendezvous::Generation generation);
  bool hangs(rendezvous::Generation generation) const;

  // Whether something of the state below may have changed since the last call.
  bool TakeTouched() { return std::exchange(touched_, false); }
  void Touch() { touched_ = true; }
  bool was_started() const { return epoch_ > 0; }
  // How often the agent was started, or thawed.
  uint64_t wakes() const { return wakes_; }
  bool frozen() const { return frozen_; }
  bool agent_runs() const { return supervisor_ != nullptr; }
  // Whether the agent has a stream, and isn't about to close it.
  bool listens() const { return agent_runs() && stream_ != 0 && !finishing_ && !signalled_; }
  // The stream over which the agent can hear and answer; 0 = there is none.
  uint64_t live_stream() const {
    return listens() && welcomed_ && !frozen_ && stream_ != broken_ ? stream_ : 0;
  }
  int number() const { return number_; }
  bool hosts_service() const { return hosts_service_; }
  // When the agent died, or ended; infinite = it runs, or never did.
  Instant dead_since() const { return dead_since_; }
  // Since when only the network keeps the agent from having a stream again; infinite = it has one,
  // doesn't know that it hasn't, or can't have one.
  Instant away_since() const {
    return agent_runs() && !frozen_ && !leaves() && stream_ != broken_ ? away_since_
                                                                       : Instant::Infinite();
  }
  // How long the agent had heard nothing when it gave its service up; infinite = it didn't.
  absl::Duration gave_up_after() const { return gave_up_after_; }
  // When the agent was last thawed: until then it wasn't coming back (seed 9881656).
  Instant thawed_at() const { return thawed_at_; }
  // When the agent was killed, which reset its stream; infinite = it wasn't.
  Instant reset_at() const { return reset_at_; }
  const std::optional<rendezvous::AgentMessage>& last_join() const { return join_; }
  bool has_stream() const { return stream_ != 0; }
  uint64_t stream() const { return stream_; }  // 0 = it has none
  // Whether the agent ends by itself, or is about to: then it doesn't come back.
  bool leaves() const { return signalled_ || finishing_; }
  rendezvous::Incarnation incarnation() const { return config_.identity.incarnation; }
  uint32_t pid() const { return config_.identity.node.agent_pid; }
  const rendezvous::NodeId& id() const { return config_.identity.node_id; }
  const rendezvous::NodeInfo& info() const { return config_.identity.node; }
  // The generation of the live workers here, supervised by an agent or not.
  std::optional<rendezvous::Generation> live_generation() const;
  std::string DebugString() const;

  // Called by the network.
  void OnOpened(uint64_t epoch, uint64_t stream);
  void OnMessage(uint64_t epoch, uint64_t stream, const rendezvous::ServiceMessage& message,
                 bool beside);
  void OnClosed(uint64_t epoch, uint64_t stream, absl::Status status);

 private:
  struct Worker {
    uint32_t pid = 0;
    bool alive = true;
    bool stopping = false;
    bool hung = false;
    uint64_t step = 0;   // the step that it has begun, or is held before
    bool held = false;   // at a stop step
    bool saves = false;  // at that stop step
  };

  Instant LocalNow() const;
  // A time of the simulation's clock that is at least `local`.
  Instant Simulated(Instant local) const;
  void Reconnect(uint64_t epoch, absl::Duration pause);
  void AnswerBeside(uint64_t stream, const rendezvous::Probe& probe);
  void Send(rendezvous::AgentMessage&& message);
  void Handle(const launcher::SupervisorEvent& event);
  void Take(launcher::SupervisorEffect& effect);
  void ArmTimer();
  void Spawn(const rendezvous::Assignment& assignment);
  void Signal(rendezvous::Generation generation, int signal_number);
  void Sweep(rendezvous::Generation generation);
  void HandleHung(const launcher::HandleHungWorkers& order);
  rendezvous::HangReport Findings() const;
  void EndWorker(rendezvous::Generation generation, uint32_t local_rank,
                 const rendezvous::WorkerFailure& how);
  void EndAgent();
  void BeginStep(rendezvous::Generation generation, uint32_t local_rank);
  void Save(uint32_t local_rank);
  void Prepare(const launcher::LookAtStopStep& request);
  launcher::StopStepLooked LookAtSteps(uint32_t round) const;
  void Commit();

  const int number_;
  EventQueue* queue_;
  Rng* rng_;
  SimNetwork* network_;
  launcher::SupervisorConfig config_;
  const WorkerHabits* habits_;
  Callbacks callbacks_;

  std::unique_ptr<launcher::Supervisor> supervisor_;
  bool touched_ = true;
  uint64_t epoch_ = 0;  // counts agent processes
  uint64_t wakes_ = 0;
  bool drifts_ = false;
  absl::Duration clock_at_zero_ = absl::ZeroDuration();
  int64_t clock_permille_ = 1000;
  uint64_t stream_ = 0;
  uint64_t broken_ = 0;    // a stream that is broken, which the agent may not know yet
  bool welcomed_ = false;  // on this stream
  bool frozen_ = false;
  Instant thawed_at_;
  bool signalled_ = false;  // asked to end
  bool finishing_ = false;  // the stream was half-closed: no more reconnects
  std::vector<Call> frozen_calls_;
  absl::Duration next_pause_;                           // before a connect after a failed one
  std::optional<rendezvous::AgentMessage> join_;        // the last
  std::optional<rendezvous::AgentMessage> last_event_;  // that was sent on this stream
  rendezvous::Term term_;                               // of the service that welcomed it
  Instant dead_since_ = Instant::Infinite();
  Instant heard_at_;
  absl::Duration gave_up_after_ = absl::InfiniteDuration();
  Instant reset_at_ = Instant::Infinite();
  Instant away_since_ = Instant::Infinite();
  bool hosts_service_ = false;
  EventQueue::Timer timer_;
  uint64_t steps_ = 0;  // steps with nothing but renewals
  rendezvous::Generation generation_;
  std::vector<Worker> workers_;
  uint64_t prepared_ = 0;
  bool committed_ = false;
  uint32_t next_port_ = 20000;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_NODE_H_
