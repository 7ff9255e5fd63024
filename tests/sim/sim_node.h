#ifndef DDPRUN_TESTS_SIM_SIM_NODE_H_
#define DDPRUN_TESTS_SIM_SIM_NODE_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/rng.h"
#include "launcher/core/supervisor.h"
#include "tests/sim/event_queue.h"
#include "tests/sim/sim_network.h"

namespace ddprun::sim {

// How workers of a simulated job behave.
struct WorkerHabits {
  // When a worker that nobody disturbs ends with 0, counted from its start.
  std::function<absl::Duration()> lifetime;
  // Percent of stops in which TERM is ignored until the sweep.
  uint32_t ignores_term_percent = 10;
  // Percent of sweeps that leave something behind for 20 s.
  uint32_t unclean_percent = 0;
  // Whether the program asks for stop steps, and how long its steps take.
  bool asks_for_stop_steps = false;
  absl::Duration step_time = absl::Milliseconds(300);
};

// One machine: the real agent core (launcher/core), with workers that are entries of a table, and
// the keeper's part of the bargain: when the agent dies, the workers do too, a little later.
class SimNode {
 public:
  // What happens to the outside.
  struct Callbacks {
    // A worker ended: by itself with 0, or not well; at a stop step it is not done with its work.
    std::function<void(int node, rendezvous::Generation, bool ok, bool at_stop)> worker_ended;
    std::function<void(int node, const rendezvous::Assignment&)> spawned;
    // A worker saves at a stop step.
    std::function<void(int node, rendezvous::Generation, uint64_t step)> stopped;
    std::function<void(int node, const launcher::Exit&)> exited;
    // Whether a worker of the generation hangs, on any node: then all of them stand still.
    std::function<bool(rendezvous::Generation)> job_hangs;
    // A worker is ended because it hangs; whether it does.
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
  // Its monotonic clock: where it is when the simulation's is 0, and how fast, in thousandths.
  void SetClock(absl::Duration at_zero, int64_t permille) {
    clock_at_zero_ = at_zero;
    clock_permille_ = permille;
  }
  // SIGSTOP and SIGCONT of the agent.
  void SetFrozen(bool frozen);
  void SignalAgent(int signal_number);
  // A worker dies by itself; nothing happens without one.
  void FailWorker(int signal_number, const std::string& message);
  void BreakStream();
  // A worker stops making progress; nothing happens without one.
  void HangWorker();
  // This node's workers wait for one that hangs: the agent becomes suspicious, and says so until
  // none does.
  void BecomeSuspicious(rendezvous::Generation generation);
  bool hangs(rendezvous::Generation generation) const;

  bool was_started() const { return epoch_ > 0; }
  // How often it was started, or thawed.
  uint64_t wakes() const { return wakes_; }
  bool frozen() const { return frozen_; }
  bool agent_runs() const { return supervisor_ != nullptr; }
  // Has a stream and isn't about to close it.
  bool listens() const { return agent_runs() && stream_ != 0 && !finishing_ && !signalled_; }
  // The one over which it can hear and answer; 0 = there is none.
  uint64_t live_stream() const { return listens() && !frozen_ && stream_ != broken_ ? stream_ : 0; }
  int number() const { return number_; }
  rendezvous::Incarnation incarnation() const { return config_.identity.incarnation; }
  uint32_t pid() const { return config_.identity.node.agent_pid; }
  const rendezvous::NodeId& id() const { return config_.identity.node_id; }
  const rendezvous::NodeInfo& info() const { return config_.identity.node; }
  // The generation whose workers are alive here, whoever supervises them.
  std::optional<rendezvous::Generation> live_generation() const;
  std::string DebugString() const;

  // From the network.
  void OnOpened(uint64_t epoch, uint64_t stream);
  void OnMessage(uint64_t epoch, uint64_t stream, rendezvous::ServiceMessage message);
  void OnClosed(uint64_t epoch, uint64_t stream, absl::Status status);

 private:
  struct Worker {
    uint32_t pid = 0;
    bool alive = true;
    bool stopping = false;
    bool hung = false;
    uint64_t step = 0;   // that it has begun, or is held before
    bool held = false;   // at a stop step
    bool saves = false;  // there
  };

  Instant LocalNow() const;
  // When the simulation's clock is at least there.
  Instant Simulated(Instant local) const;
  bool DeferWhileFrozen(std::function<void()> call);
  void Handle(launcher::SupervisorEvent event);
  void Take(launcher::SupervisorEffect effect);
  void ArmTimer();
  void Spawn(const rendezvous::Assignment& assignment);
  void Signal(rendezvous::Generation generation, int signal_number);
  void Sweep(rendezvous::Generation generation);
  void EndHung(const launcher::EndHungWorkers& order);
  rendezvous::HangReport Findings() const;
  void EndWorker(rendezvous::Generation generation, uint32_t local_rank,
                 const launcher::WorkerEnd& how);
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
  uint64_t epoch_ = 0;  // counts agent processes
  uint64_t wakes_ = 0;
  absl::Duration clock_at_zero_ = absl::ZeroDuration();
  int64_t clock_permille_ = 1000;
  uint64_t stream_ = 0;
  uint64_t broken_ = 0;  // a stream that was, which it may not know yet
  bool frozen_ = false;
  bool signalled_ = false;  // asked to end
  bool finishing_ = false;  // the stream was half-closed: no more reconnects
  std::vector<std::function<void()>> frozen_calls_;
  uint64_t timer_ = 0;  // the one that is armed
  rendezvous::Generation generation_;
  std::vector<Worker> workers_;
  uint64_t prepared_ = 0;
  bool committed_ = false;
  uint32_t next_port_ = 20000;
};

}  // namespace ddprun::sim

#endif  // DDPRUN_TESTS_SIM_SIM_NODE_H_
