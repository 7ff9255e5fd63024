#ifndef DDPRUN_RENDEZVOUS_CORE_JOB_H_
#define DDPRUN_RENDEZVOUS_CORE_JOB_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/generation_record.h"
#include "rendezvous/core/hang_judge.h"
#include "rendezvous/core/lease_table.h"
#include "rendezvous/core/ledger.h"
#include "rendezvous/core/membership_policy.h"
#include "rendezvous/core/node_blame.h"
#include "rendezvous/core/node_table.h"
#include "rendezvous/core/restart_policy.h"
#include "rendezvous/core/round.h"
#include "rendezvous/core/state_machine.h"
#include "rendezvous/core/stop_step.h"

namespace ddprun::rendezvous {

// The state behind StateMachine, which documents what it does; here is how.
//
// Handlers of events change nodes, the live round and the phase; then Advance() decides whether a
// generation begins or ends, and last the standby texts go out. Every change of a node ends in
// Refresh(node), which keeps the counts and the deadline queue right. A message costs O(log n),
// a tick and the begin and end of a generation O(n).
//
//   job.cc          phases: Advance, timers, forming a generation and stopping it
//   job_closing.cc  what the end of a generation costs, and the verdict
//   job_streams.cc  streams, joins and what a node that comes back is told
//   job_events.cc   what nodes report, and their loss
//   job_preemption.cc  at which step all stop for a node that is taken away
//   job_draining.cc    nodes that are asked to leave
//   job_hangs.cc    which worker holds up the others
//   job_view.cc     standby texts, View and the invariants
class Job {
 public:
  Job(Term term, std::string token);

  std::vector<Effect> Step(Instant now, const Event& event);
  Instant NextDeadline() const;
  JobView View(Instant now) const;
  const std::deque<GenerationView>& generations() const { return record_.generations(); }
  // The first broken invariant in words; "" = all hold.
  std::string BrokenInvariant() const;
  // One line for each part of the state, for failed checks.
  std::string DebugString() const;

 private:
  enum class Phase { kForming, kRunning, kClosing, kEnded };
  using Fields = std::vector<std::pair<std::string, std::string>>;

  void On(const MessageReceived& event);
  void On(const StreamClosed& event);
  void On(const StopRequested& event);
  void On(const DrainRequested& event);
  void On(const TimerDue& event);
  void On(const PersistDone& event);

  // Streams and joins.
  void OnFirstMessage(StreamKey stream, const AgentMessage& message);
  absl::Status CheckJoin(const AgentMessage& message, const Join& join) const;
  absl::Status CheckClaim(const Node* self, const NodeInfo& info);
  void Reattach(Node& node, StreamKey stream, const AgentMessage& message, const Join& join);
  void Resync(Node& node, const AgentMessage& message, const Join& join);
  void AddNode(StreamKey stream, const AgentMessage& message, const Join& join);
  void JoinEnded(StreamKey stream, const AgentMessage& message, const Join& join);
  void Attach(Node& node, StreamKey stream, StreamNumber number);
  bool IsLive(const Node& node) const;
  void RefuseRivals(const Node& holder);
  void Refuse(StreamKey stream, const NodeId& node, absl::Status status);
  void CloseNodeStream(Node& node, absl::Status status);
  void BeginCleaning(Node& node, Generation generation);

  // What nodes report.
  void OnMessage(Node& node, const AgentMessage& message);
  void BreakOff(Node& node, absl::Status status);
  bool TakeSequence(Node& node, const AgentMessage& message);
  void OnRenewal(Node& node, const Renewal& renewal, Generation generation);
  void TakeGpus(Node& node, const std::vector<GpuUse>& gpus);
  void TakeProgress(Node& node, const Renewal& renewal, Generation generation);
  void TakeTime(const Node& node, const std::optional<NodeTime>& time, bool done);
  void SawStep(uint64_t step);
  Instant SilentSince() const;
  void OnEvent(Node& node, const AgentMessage& message);
  void OnCleaned(Node& node, const GroupStopped& stopped);
  void OnReport(Node& node, const WorkersStarted& started);
  void OnReport(Node& node, const WorkerFailed& failed);
  void OnReport(Node& node, const GroupSucceeded& succeeded);
  void OnReport(Node& node, const GroupStopped& stopped);
  void OnReport(Node& node, const HangReport& report);
  void AskForProgress(absl::Duration sample);
  void JudgeInquiry();
  void EndHungWorkers(const HangVerdict& verdict);
  void OnReport(Node& node, const Preempt& preempt);
  void OnReport(Node& node, const StopPrepared& prepared);
  void NotePreempted(std::string text);
  void SendDrain(const Node& node);
  void Undrain(const NodeId& node);
  const DrainedNode* FindDrained(const NodeId& node) const;
  absl::Status CheckDrained(const AgentMessage& message, const Join& join) const;
  void CarryOut(StopAgreement::Action action);
  void AskForStop(const Node& node);
  void AbandonStop();
  bool EndPreempted();
  void OnLeave(Node& node, const Leave& leave);
  bool AddFailure(const Node& node, WorkerFailure failure);
  void Ignore(const Node& node, const AgentMessage& message, const std::string& why);

  // Loss.
  enum class LossWhy { kStreamClosed, kLeaseExpired, kUnclean, kSuperseded };
  void LoseNode(Node& node, LossWhy why);
  void RemoveNode(Node& node, RoundMember::State member_state, const std::string& reason,
                  absl::Status refusal);
  bool IsDone(const Node& node) const;
  void Expire(Node& node);

  // Phases.
  void Advance();
  bool AdvanceOnce();
  std::vector<Candidate> ChooseCandidates();
  std::vector<Node*> ChooseNodes();
  std::string MakeRound(const std::vector<Node*>& ranked);
  void FormGeneration();
  Assignment AssignmentOf(uint32_t group_rank) const;
  void BeginClosing(const std::string& reason, const std::string& trigger);
  void SendStop(Node& node);
  void CloseRound();
  void GiveUpForming();
  RestartDecision JudgeRound(const FirstCause& cause) const;
  void ReleaseMembers();
  void EndJob(Outcome outcome, Rule rule, std::string reason);
  void CheckFarewell();
  void JudgeStall(Instant now);
  void Tick();
  void Refresh(Node& node);
  bool CouldStart(const Node& node) const;
  Instant PhaseDeadline() const;
  FormingInput FormingState() const;
  GrowthInput GrowthState() const;
  uint32_t Newcomers() const;
  void WatchCounts();

  // Texts.
  std::string MissingText() const;
  Standby StandbyOf(const Node& node, const std::string& missing) const;
  void SendStandby(Node& node, const std::string& missing);
  void SendDueStandbys();
  std::string StateOf(const Node& node) const;
  std::string HolderText() const;
  std::string BrokenCounts() const;
  std::string BrokenRound() const;
  std::string BrokenDeadlines() const;

  void SendTo(const Node& node, ServiceMessage message);
  void AddNote(std::string event, Fields fields);

  const Term term_;
  const std::string token_;
  Instant now_;
  std::vector<Effect> effects_;

  bool ever_joined_ = false;
  bool has_spec_ = false;
  JobSpec spec_;
  Phase phase_ = Phase::kForming;
  std::string reason_;  // of the phase, for people
  Generation generation_;
  RestartHistory history_;
  GenerationRecord record_;
  Ledger ledger_;
  uint64_t highest_step_ = 0;     // that was begun, and not saved by a stop step
  std::optional<Instant> fault_;  // when what is about to close the round happened
  Instant first_join_;
  NodeBlame blame_;

  NodeTable nodes_;
  uint32_t candidates_ = 0;           // nodes that could start now
  uint32_t claiming_candidates_ = 0;  // of these, those with a claim
  ProbeLog probes_;
  DeadlineQueue deadlines_;
  Instant tick_due_ = Instant::Infinite();
  std::vector<uint64_t> standby_due_;  // nodes to tell at the end of this step
  bool standby_due_all_ = false;

  // Forming.
  RoundCause cause_ = RoundCause::kFirst;
  Instant forming_since_;  // in the future: after a pause
  Instant min_reached_ = Instant::Infinite();
  std::string cause_text_;              // why the last generation ended
  Rule rule_ = Rule::kAllNodes;         // by which the current one was formed
  std::vector<NodeId> previous_ranks_;  // of the last generation, by group rank

  // Running and closing.
  std::optional<Round> round_;
  std::string master_addr_;
  uint32_t master_port_ = 0;
  std::string store_address_;
  std::string assignment_reason_;
  HangInquiry inquiry_;
  Instant ask_again_;  // not before: for reports of the open inquiry
  StopAgreement stop_;
  std::vector<DrainedNode> drained_;
  std::string stop_why_;  // of the agreement, and what triggered it: "preempted"
  std::string stop_trigger_;
  std::string preempted_;        // why nodes of this generation are taken away; "" = none is
  bool preempted_host_ = false;  // one of them has the service
  Instant newcomers_since_ = Instant::Infinite();
  absl::Duration uptime_;     // until the trigger that closed it
  bool for_growth_ = false;   // what closes it
  std::string close_reason_;  // the first trigger
  std::string loss_reason_;   // the first loss; "" = none

  // Ended.
  Verdict verdict_;
  Instant farewell_end_ = Instant::Infinite();
  bool forgotten_ = false;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_JOB_H_
