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
  // How long the service may be out of reach at the beginning; never longer than job.join_timeout.
  absl::Duration reach_timeout = absl::InfiniteDuration();
  absl::Duration service_loss_timeout = absl::Seconds(10);
  SignalPolicy signals;
  // Exit with the first cause's own status when the job failed (128 + signal), not with 1.
  bool exit_with_first_cause = false;
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
  // One line of state, for logs and invariants.
  std::string DebugString() const;

 private:
  enum class Phase { kJoining, kStandby, kEnding, kEnded };

  void On(const EndpointFound&);
  void On(const StreamOpened&);
  void On(const ServiceMessageReceived&);
  void On(const ServiceStreamClosed&);
  void On(const ServiceExited&);
  void On(const WorkerStarted&);
  void On(const WorkerEnded&);
  void On(const WorkerSuspended&);
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

  rendezvous::AgentMessage Header() const;
  void SendEvent(rendezvous::Generation generation, decltype(rendezvous::AgentMessage::body) body);
  void SendJoin();
  void SendStopped(bool clean);
  rendezvous::WorkerFailure Describe(const WorkerEnd& end) const;

  void Spawn(const rendezvous::Assignment& assignment);
  void StopGroup(int signal_number, const std::string& why);
  void Apply(GroupAction action, const std::string& why);
  void EndStores(const std::string& why);
  void LeaveOnSignal(int number);
  void SendLeave();
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
  bool ever_spawned_ = false;
  std::string stop_reason_;

  // Standby, told when it lasts.
  std::string standby_text_;
  Instant tell_standby_ = Instant::Infinite();

  // Ending.
  int leave_signal_ = 0;  // 0 = nothing asked us to leave; -1 = the keeper died
  bool leave_sent_ = false;
  bool finish_sent_ = false;
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
