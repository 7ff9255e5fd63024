#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_H_

#include <optional>
#include <string>
#include <vector>

#include "base/instant.h"
#include "launcher/core/agent_settings.h"
#include "launcher/core/attentive_clock.h"
#include "launcher/core/signal_policy.h"
#include "launcher/core/supervisor/departure.h"
#include "launcher/core/supervisor/ending.h"
#include "launcher/core/supervisor/endpoint_hints.h"
#include "launcher/core/supervisor/service_stream.h"
#include "launcher/core/supervisor/service_watch.h"
#include "launcher/core/supervisor/supervisor_events.h"
#include "launcher/core/supervisor/supervisor_text.h"
#include "launcher/core/supervisor/worker_group.h"
#include "rendezvous/core/agent_message.h"
#include "rendezvous/core/identifiers.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/service_message.h"
#include "rendezvous/core/verdict.h"

namespace ddprun::launcher {

// The settings of one agent, by the part of the supervisor that uses them.
struct SupervisorConfig {
  rendezvous::JobSpec job;
  AgentIdentity identity;
  EndpointName endpoint;
  ServiceTimeouts service;
  SignalPolicy signals;
  PreemptionSettings preemption;
  ExitBarrierSettings exit_barrier;
  EndingSettings ending;
  // --on_stopped restart: a worker that a signal stops counts as hung at once.
  bool restart_stopped = false;
};

// Decides what one agent does: talks with the rendezvous service, runs the workers of one
// generation after the other, answers signals, and ends. Rules R3, R5, R7, R8 of docs/PROTOCOL.md
// from the agent's side. Pure: time and events in, ordered effects out.
//
//   joining ─Welcome─► standby ─Assignment─► (worker group runs, stops, is swept) ─► standby …
//      any ─verdict, refusal, service lost, signal─► ending ─(group empty, stream closed)─► ended
//
// Each part below owns its state and answers with decisions. The supervisor turns a decision of one
// part into effects and into calls of the others. docs/ARCHITECTURE.md has the parts as a table.
//
// Threads: one at a time; the shell's loop.
class Supervisor {
 public:
  Supervisor(const SupervisorConfig& config, Instant now);

  // Takes one event at `now` (which never goes back) and returns what to do, in this order. After
  // Exit every event gives nothing.
  std::vector<SupervisorEffect> Step(Instant now, const SupervisorEvent& event);

  // When Step(TimerFired) is wanted next; infinite = not at all.
  Instant NextDeadline() const;

  // "joining", "waiting", "running", "stopping" or "ending", for people and probes.
  const char* StateName() const;
  // Whether the next generation waits for the end of the workers here.
  bool has_next_assignment() const { return next_assignment_.has_value(); }
  // Whether the service hasn't welcomed the agent yet.
  bool joining() const { return phase_ == Phase::kJoining; }
  // The service's absence; nullopt while it is heard, or this agent ends.
  std::optional<ServiceWatch::Absence> MissingService(Instant now) const {
    return is_ending() ? std::nullopt : watch_.Look(clock_.At(now));
  }
  // The term of the service that welcomed this agent last; 0 = none did.
  rendezvous::Term term() const { return stream_.term(); }
  // The newest generation that began here; 0 = none.
  rendezvous::Generation generation() const { return group_.generation(); }
  // This agent ends, or has ended, for any reason.
  bool is_ending() const { return phase_ >= Phase::kEnding; }
  // Whether this agent ends, or has ended, because it gave the service up.
  bool LostService() const { return ending_.gave_up_service(); }
  // The highest step that this node's workers marked in their last generation; nullopt = none did.
  const std::optional<uint64_t>& last_step() const { return last_.step(); }
  // One line of state, for logs and invariants.
  std::string DebugString() const;
  // Which invariant of the parts, or between them, is broken; "" = none. For tests, after a Step.
  std::string BrokenInvariant() const;

 private:
  enum class Phase { kJoining, kStandby, kEnding, kEnded };

  // Events of this node.
  void On(const EndpointFound&);
  void On(const StreamOpened&);
  void On(const ServiceMessageReceived&);
  void On(const HeartbeatHeard&);
  void On(const ServiceStreamClosed&);
  void On(const ServiceExited&);
  void On(const WorkerStarted&);
  void On(const WorkerEnded&);
  void On(const WorkerCanRejoin&);
  void On(const WorkerLetGo&);
  void On(const WorkerSuspended&);
  void On(const ProgressFound&);
  void On(const StopStepLooked&);
  void On(const GroupEmpty&);
  void On(const KeeperLost&);
  void On(const SignalReceived&);
  void On(const TimerFired&);

  // Messages of the service.
  void OnMessage(const rendezvous::Welcome&);
  void OnMessage(const rendezvous::Probe&);
  void OnMessage(const rendezvous::Standby&);
  void OnMessage(const rendezvous::Assignment&);
  void OnMessage(const rendezvous::StopWorkers&);
  void OnMessage(const rendezvous::Verdict&);
  void OnMessage(const rendezvous::ReportProgress&);
  void OnMessage(const rendezvous::HungWorkers&);
  void OnMessage(const rendezvous::PrepareStop&);
  void OnMessage(const rendezvous::CommitStop&);
  void OnMessage(const rendezvous::Drain&);
  void OnMessage(const rendezvous::UnknownKind&) {}

  // A generation of workers: supervisor.cc.
  bool Runs(rendezvous::Generation generation) const;
  bool WorkersGoOn() const;
  void Take(const rendezvous::Assignment& assignment);
  void Spawn(const rendezvous::Assignment& assignment);
  void StopGroup(int signal_number, const std::string& why);
  void KillGroup(const std::string& why);
  void Explain(const std::string& why);
  void Apply(GroupAction action, const std::string& why);
  void EndStores(const std::string& why);

  // Workers that rejoin: supervisor_rejoin.cc.
  bool MayRejoin() const;
  void Signal(const std::string& why);
  std::vector<uint32_t> NotifyLate();
  absl::Duration LetGoBound() const;
  std::string KeptText(const rendezvous::Assignment& assignment) const;
  void OnKeptEnded(const WorkerEnd& end);
  void SweepKept();
  SweepGroup::After SweepAfter() const;
  void StopWhenSettled();
  void SendStopped(bool clean);

  // A node that is taken away, and the end: supervisor_ending.cc.
  bool CanAgree() const;
  void Agree();
  void AgreeOrLeave();
  void CheckPreemption();
  bool LeavePreempted();
  void OnSecondSignal(int number);
  void LeaveOnSignal(int number);
  bool LeaveEndsJob() const;
  void SendLeave();
  void EndExitBarrier();
  void CheckService();
  void LoseService(const std::string& why);
  void EndUnclean();
  void BecomeEnding();
  void End(int status, const std::string& why);
  void ContinueEnding();
  void Finish();

  Instant NextBound() const;

  // These append an effect to effects_.
  void Send(rendezvous::Generation generation, decltype(rendezvous::AgentMessage::body) body);
  void LookAtStop(uint32_t round, uint64_t step);
  void Notify(NotifyUser::Level level, std::string text);
  void ReportEnd(const std::string& text);
  void RecordFact(std::string event, RecordFields fields);

  const SignalPolicy signals_;
  const bool restart_stopped_;
  const std::string endpoint_;  // for people
  // The times of the newest Step(); neither ever goes back. The parts' time-outs use `now_`, the
  // time of clock_. --preempt_after and the times of workers' ends are real time.
  Instant real_now_;
  Instant now_;
  AttentiveClock clock_;
  // kJoining: so is watch_. kEnded: events have no effect any more.
  Phase phase_ = Phase::kJoining;
  std::vector<SupervisorEffect> effects_;  // of the current Step()

  // The service.
  ServiceStream stream_;
  ServiceWatch watch_;
  EndpointHints hints_;
  StandbyNotice standby_;

  // The workers.
  WorkerGroup group_;
  bool killed_by_signal_ = false;  // a second signal has come
  int ending_signal_ = 0;          // the last signal that ends the agent; 0 = none
  Instant signalled_;              // when ending_signal_ came
  LastGeneration last_;
  ExitBarrier barrier_;
  std::optional<rendezvous::Assignment> next_assignment_;  // waits for the group to be empty
  uint32_t world_size_ = 0;                                // of the group's generation

  // Stops in time, and the end.
  AgreedStop stop_;
  Departure departure_;
  Ending ending_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_SUPERVISOR_H_
