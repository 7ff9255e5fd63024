#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_JOB_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_JOB_H_

#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/core/failures/node_blame.h"
#include "rendezvous/core/generation/closing.h"
#include "rendezvous/core/generation/forming.h"
#include "rendezvous/core/generation/generation_record.h"
#include "rendezvous/core/generation/growth.h"
#include "rendezvous/core/generation/hang_inquiry.h"
#include "rendezvous/core/generation/next_round.h"
#include "rendezvous/core/generation/preemption.h"
#include "rendezvous/core/generation/round.h"
#include "rendezvous/core/generation/standby.h"
#include "rendezvous/core/job/farewell.h"
#include "rendezvous/core/job/ledger.h"
#include "rendezvous/core/job/recovery.h"
#include "rendezvous/core/job/state_machine.h"
#include "rendezvous/core/job/step_effects.h"
#include "rendezvous/core/members/gate.h"
#include "rendezvous/core/members/lease_table.h"
#include "rendezvous/core/members/roster.h"
#include "rendezvous/core/members/silence.h"

namespace ddprun::rendezvous {

// The implementation of StateMachine, which documents its behaviour. It owns the parts below,
// passes each event on to them, and carries out what they decide. A rule about one part is in that
// part.
//
//              Gate admits nodes to the Roster; the ProbeClock finds the silent ones
//                 │
//   forming ──Forming──► running ──(a Trigger)──► closing ──Closing: settle──► forming …
//                        │ Round, HangInquiry,     │ Round, Preemption           │
//                        │ Preemption, Growth      └─(verdict)─► ended: Farewell ◄┘
//
// An event changes parts; then Advance() takes the phase transitions that are due; last, nodes
// without a rank learn why. A message costs O(log n); a tick, and the begin and the end of a
// generation, cost O(n).
//
//   job.cc          events, time, phases: how a generation begins and ends, and the job
//   job_nodes.cc    streams, joins, nodes that come back, and losses
//   job_reports.cc  what nodes report
//   job_recovery.cc the record, and how another service resumes from it
//   job_view.cc     texts, View and the check of all invariants
class Job {
 public:
  // See StateMachine.
  Job(Term term, std::string token, bool keeps);
  Job(Instant now, JobRecord record, absl::Duration elapsed, std::string token);

  std::vector<Effect> Step(Instant now, const Event& event);
  Instant NextDeadline() const;
  JobRecord TakeRecord(Instant now);
  JobView View(Instant now) const;
  const std::deque<GenerationView>& generations() const { return record_.generations(); }
  // The first broken invariant in words, of a part or between parts; "" = all hold. O(n).
  std::string BrokenInvariant() const;
  // One line for each part of the state, for failed checks.
  std::string DebugString() const;

 private:
  // How a node leaves the table.
  struct Departure {
    RoundMember::State state =
        RoundMember::State::kLeft;      // of the member that it was: kLeft or kLost
    std::string reason = {};            // why a generation ends by this; "" = it can't end one
    absl::Status refusal = {};          // not OK: this agent process may not come back
    std::optional<Instant> fault = {};  // earliest time of a fault that was unknown until now
  };

  void On(const MessageReceived& event);
  void On(const StreamClosed& event);
  void On(const StopRequested& event);
  void On(const DrainRequested& event);
  void On(const TimerDue& event);
  void On(const PersistDone& event);

  void Advance();
  bool AdvanceOnce();
  void FormGeneration(Rule rule);
  void BeginClosing(const Trigger& trigger);
  void CloseRound();
  void EndJob(Outcome outcome, Rule rule, std::string reason);
  void FinishFarewell();
  void CarryOut(Preemption::Action action);
  bool EndPreempted();
  void AbandonStop();

  // The record.
  uint64_t RecoverNodes(const JobRecord& record, std::vector<uint64_t>& orders);
  void RecoverRound(const RoundRecord& record, const std::vector<uint64_t>& orders);
  void RecordNodes(JobRecord& record) const;
  RoundRecord RecordRound() const;
  void NotifyRecovery();
  void NoteBack(const Node& node);
  void NoteGone(const Node& node);
  void BoundVanished();
  void EndRecovery();
  absl::Status CheckNotAhead(const AgentMessage& message) const;

  void OnJoin(StreamKey stream, const AgentMessage& message, const Join& join);
  void AddNode(StreamKey stream, const AgentMessage& message, const Join& join);
  void Reattach(const Node& node, StreamKey stream, const AgentMessage& message, const Join& join);
  void JoinEnded(StreamKey stream, const AgentMessage& message, const Join& join, bool is_late);
  void Resync(const Node& node, const AgentMessage& message, const Join& join);
  void OpenStream(const Node& node, StreamKey stream, StreamNumber number);
  void EndStream(const Node& node, absl::Status status);
  void BreakOff(const Node& node, absl::Status status);
  void Refuse(StreamKey stream, const NodeId& node, absl::Status status);
  void NoteRefusal(const NodeId& node, const absl::Status& status);
  void RefuseRivals(const Node& holder);
  void LoseNode(const Node& node, LossProof proof);
  void RemoveNode(const Node& node, Departure departure);

  // Reports of a node about itself, and as a member of the live generation.
  void OnMessage(const Node& node, const AgentMessage& message);
  void OnRenewal(const Node& node, const Renewal& renewal, Generation generation);
  void SawProgress(const Node& node, const Renewal& renewal);
  void OnEvent(const Node& node, const AgentMessage& message);
  void OnLeave(const Node& node, const Leave& leave);
  void OnReport(const Node& node, const WorkersStarted& started);
  void OnReport(const Node& node, const WorkerFailed& failed);
  void OnReport(const Node& node, const GroupSucceeded& succeeded);
  void OnReport(const Node& node, const GroupStopped& stopped);
  void OnReport(const Node& node, const HangReport& report);
  void OnReport(const Node& node, const Preempt& preempt);
  void OnReport(const Node& node, const StopPrepared& prepared);

  // Messages to nodes.
  void SendStop(const Node& node);
  void SendQuestion(const Node& node);
  void SendDrain(const Node& node);
  void SendProbes();
  void SendLaggards();
  void SendDueStandbys();

  // Questions that involve several parts.
  const JobSpec& spec() const { return gate_.spec(); }
  // The current probe interval and lease.
  ProbePace pace() const { return probes_.pace(spec().lease, spec().nodes_min); }
  bool unformed() const { return phase_ == JobPhase::kForming && generation_ == Generation(); }
  bool IsDone(const Node& node) const;
  // The agent's events up to this one are settled: it need not send them again.
  uint64_t Confirmed(const Node& node) const {
    return recorder_.keeps() ? node.confirmed : node.processed;
  }
  uint32_t Newcomers() const { return CountNewcomers(spec(), roster_, blame_, now_).answering; }
  bool IsLeftOut(const Node& node) const;
  Instant PhaseDeadline() const;
  void JudgeStall(Instant now);
  bool ProvesLoss(const Roster::Overdue& overdue);
  SilenceInput SilenceOf(const Node& node) const;
  bool AwaitSilent(const Node& node);
  void ReconsiderSilent(absl::Duration least = absl::ZeroDuration());
  void NoteSilenceOver(const Node& node, absl::Duration silence);
  void LoseSilent();
  void Excuse(Instant until);
  void NoteHeard(const Node& node);
  void EndIsolation();
  std::string StateOf(const Node& node) const;
  std::string RecoveryText() const;
  std::string SilenceText(Instant now) const;
  const char* BrokenPhase() const;
  std::string BrokenMembers() const;

  Instant now_;                          // never goes back
  Instant forgiven_until_;               // <= now_; stalls before this are compensated
  JobPhase phase_ = JobPhase::kForming;  // kEnded for good
  std::string reason_;                   // of the phase, for people; empty before the first Join
  Generation generation_;                // the newest one; grows by one

  Gate gate_;               // the job's spec, and admission
  Roster roster_;           // the nodes
  ProbeClock probes_;       // ticks while a node has a stream and the job lives
  DrainList drains_;        // machines that may not join any more
  Isolation isolation_;     // open only while running
  NodeBlame blame_;         // on which nodes failures began
  StandbyDue standby_due_;  // empty between two steps

  Forming forming_;             // counts while forming
  std::optional<Round> round_;  // while running or closing; of generation_
  RestartCost cost_;            // of the newest generation
  Growth growth_;               // counts while running; remembers what growths gained
  HangInquiry inquiry_;         // open only while running
  Preemption preemption_;       // agrees only while running; committed only after running
  Closing closing_;             // begun from closing until the next generation
  Farewell farewell_;           // begun when ended

  Recovery recovery_;  // open until the nodes of the service's former life are back
  Recorder recorder_;  // nothing is due between two steps

  NoteBudget refusal_notes_;  // for refused joins
  GenerationRecord record_;   // the generations, for people
  Ledger ledger_;             // how the job's time was spent
  StepEffects effects_;       // empty between two steps
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_JOB_H_
