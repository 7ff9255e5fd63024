#ifndef DDPRUN_LAUNCHER_CORE_SUPERVISOR_H_
#define DDPRUN_LAUNCHER_CORE_SUPERVISOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "launcher/core/outbox.h"
#include "launcher/core/signal_policy.h"
#include "launcher/core/supervisor_events.h"
#include "launcher/core/worker_group.h"
#include "rendezvous/core/message.h"
#include "rendezvous/core/types.h"

namespace ddprun::launcher {

// What one agent is told about itself at its start.
struct SupervisorConfig {
  rendezvous::JobSpec job;
  rendezvous::NodeId node_id;
  rendezvous::Incarnation incarnation;
  rendezvous::NodeInfo node;  // its master_port is renewed by GroupEmpty events
  std::string token;
  std::string release;
  uint32_t protocol_major = 0;
  std::string endpoint;  // how messages name the service: "host0:29400"
  // The node that has the endpoint's address hosts the service, unless one is told to.
  bool hosts_by_address = false;
  // How long the service may be out of reach at the beginning; never longer than job.join_timeout.
  absl::Duration reach_timeout = absl::InfiniteDuration();
  absl::Duration service_loss_timeout = absl::Seconds(10);
  // How long this node, when all its workers have ended well, waits for the others. It waits on all
  // the same where the others need it: it has the service, or rank 0's store.
  absl::Duration exit_barrier_timeout = absl::InfiniteDuration();
  SignalPolicy signals;
  // How long after a preempting signal this node is still there.
  absl::Duration preempt_deadline = absl::Seconds(30);
  // The same from the start of this agent; infinite = it isn't taken away.
  absl::Duration preempt_after = absl::InfiniteDuration();
  // Exit with the first cause's own status when the job failed (128 + signal), not with 1.
  bool exit_with_first_cause = false;
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
// Threads: one at a time; the shell's loop.
class Supervisor {
 public:
  explicit Supervisor(SupervisorConfig config, Instant now);

  // Takes one event at `now` (which never goes back) and returns what to do, in this order. After
  // Exit every event gives nothing.
  std::vector<SupervisorEffect> Step(Instant now, const SupervisorEvent& event);

  // When Step(TimerFired) is wanted next; infinite = not at all.
  Instant NextDeadline() const;

  // "joining", "waiting", "running", "stopping" or "ending", for people and probes.
  const char* StateName() const;
  // Whether this agent ends, or has ended, since it gave the service up.
  bool LostService() const { return service_given_up_; }
  // One line of state, for logs and invariants.
  std::string DebugString() const;

 private:
  enum class Phase { kJoining, kStandby, kEnding, kEnded };

  void On(const EndpointFound&);
  void On(const StreamOpened&);
  void On(const ServiceMessageReceived&);
  void On(const HeartbeatHeard&);
  void On(const ServiceStreamClosed&);
  void On(const ServiceExited&);
  void On(const WorkerStarted&);
  void On(const WorkerEnded&);
  void On(const WorkerSuspended&);
  void On(const ProgressFound&);
  void On(const StopStepLooked&);
  void On(const GroupEmpty&);
  void On(const KeeperLost&);
  void On(const SignalReceived&);
  void On(const TimerFired&);

  void OnMessage(const rendezvous::Welcome&);
  void OnMessage(const rendezvous::Probe&);
  void OnMessage(const rendezvous::Standby&);
  void OnMessage(const rendezvous::Assignment&);
  void OnMessage(const rendezvous::StopWorkers&);
  void OnMessage(const rendezvous::Verdict&);
  void OnMessage(const rendezvous::ReportProgress&);
  void OnMessage(const rendezvous::EndHung&);
  void OnMessage(const rendezvous::PrepareStop&);
  void OnMessage(const rendezvous::CommitStop&);
  void OnMessage(const rendezvous::Drain&);

  rendezvous::AgentMessage Header() const;
  void SendEvent(rendezvous::Generation generation, decltype(rendezvous::AgentMessage::body) body);
  void SendJoin();
  void SendStopped(bool clean);
  rendezvous::WorkerFailure Describe(const WorkerEnd& end) const;

  void Spawn(const rendezvous::Assignment& assignment);
  void StopGroup(int signal_number, const std::string& why);
  void KillGroup(const std::string& why);
  void NoteStop(const std::string& why);
  void OnEndingSignal(int number);
  bool Preempts(int number) const;
  std::string WhyLeaving(int number, absl::string_view verb = "") const;
  bool CanAgree() const;
  bool IsIdle() const;
  void BeginPreemption(int number);
  void PreemptInTime();
  void PreemptFor(std::string why);
  bool IsStoppingAtStep() const;
  void HastenStop();
  void LookAtStop(uint32_t round, uint64_t step);
  void CheckStopStep();
  Instant StopStepDeadline() const;
  bool LeavePreempted();
  void Apply(GroupAction action, const std::string& why);
  void EndStores(const std::string& why);
  void LeaveOnSignal(int number);
  void SendLeave();
  void BeginExitBarrier();
  void EndExitBarrier();
  void WatchLoneliness(const rendezvous::Standby& standby);
  std::string LoopbackHint() const;
  std::string JoiningHint() const;
  bool LeaveEndsJob() const;
  int StatusOf(const rendezvous::Verdict& verdict) const;
  void EndUnclean();
  void CheckService();
  absl::Duration ReachTimeout() const;
  void End(int status, std::optional<rendezvous::Verdict> verdict);
  void ContinueEnding();
  void Finish();
  void TellEnd(std::string text);
  void LoseService(const std::string& why);
  void Tell(TellUser::Level level, std::string text);
  void RecordFact(std::string event, std::vector<std::pair<std::string, std::string>> fields);

  SupervisorConfig config_;
  Instant now_;
  Phase phase_ = Phase::kJoining;
  WorkerGroup group_;
  Outbox outbox_;
  std::vector<SupervisorEffect> effects_;

  // The stream.
  bool stream_up_ = false;
  bool welcomed_ = false;  // on this stream
  rendezvous::Term term_;
  rendezvous::StreamNumber stream_;
  Instant last_contact_;                        // last message of the service
  Instant began_;                               // joining
  Instant lost_since_ = Instant::Infinite();    // without a welcomed stream since
  Instant tell_joining_ = Instant::Infinite();  // when to tell the user that nobody answers
  std::string last_error_;

  // The generation.
  std::optional<rendezvous::Assignment> next_assignment_;  // waits for the group to be empty
  rendezvous::Generation succeeded_generation_;            // ended well here; 0 = none
  rendezvous::Generation ended_generation_;                // whose stores were dropped last
  std::optional<uint64_t> reached_step_;                   // in the generation that ended last
  std::optional<rendezvous::NodeTime> spent_time_;         // the same
  bool ever_spawned_ = false;
  std::string stop_reason_;
  bool any_suspect_ = false;  // of hanging, in this generation

  // A node that is taken away, and the step at which all ranks stop for it (R14).
  int asked_signal_ = 0;     // preempts this node if its workers ask for a stop step; 0 = none came
  int preempt_signal_ = 0;   // this node is taken away; 0 = it isn't
  std::string preempt_why_;  // where it isn't the signal
  bool drained_ = false;     // that is a Drain (R15)
  Instant preempt_at_;       // preempt_deadline before it is
  Instant preempt_bound_ = Instant::Infinite();   // for the agreement
  bool stop_committed_ = false;                   // in this generation
  Instant stop_reach_end_ = Instant::Infinite();  // until then workers must be at the step
  Instant stop_save_end_ = Instant::Infinite();   // and until then have ended

  // Standby, told when it lasts.
  std::string standby_text_;
  Instant tell_standby_ = Instant::Infinite();
  // The endpoint is a loopback address, and this node alone on a job of several.
  bool endpoint_is_loopback_ = false;
  bool told_loopback_ = false;
  Instant tell_loopback_ = Instant::Infinite();

  // Ending.
  uint32_t group_rank_ = 0;                    // of the newest generation
  Instant barrier_end_ = Instant::Infinite();  // when a node that is done leaves
  int leave_signal_ = 0;  // 0 = nothing asked us to leave; -1 = the keeper died
  bool leave_sent_ = false;
  bool finish_sent_ = false;
  bool ended_unclean_ = false;  // it was told that processes outlived KILL
  bool waiting_for_service_ = false;
  bool service_given_up_ = false;  // its stream may seem open, but nobody would end it
  Instant finish_bound_ = Instant::Infinite();
  int exit_status_ = 0;
  std::string end_reason_;  // of an end without a verdict
  std::optional<rendezvous::Verdict> verdict_;
  bool hosts_service_ = false;
  bool service_running_ = false;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_SUPERVISOR_H_
