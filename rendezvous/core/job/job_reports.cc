#include <algorithm>
#include <set>
#include <type_traits>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/progress_page.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/job/job.h"
#include "rendezvous/core/timing.h"
#include "rendezvous/core/worker_failure.h"

// Reports of nodes, and the orders that follow (R1, R6, R8, R13, R14).
namespace ddprun::rendezvous {
namespace {

std::string MessageName(const AgentMessage& message) {
  static constexpr const char* kNames[] = {
      "Join",         "Renewal", "Heartbeat",  "WorkersStarted", "WorkerFailed", "GroupSucceeded",
      "GroupStopped", "Leave",   "HangReport", "Preempt",        "StopPrepared", "unknown"};
  static_assert(std::size(kNames) == std::variant_size_v<decltype(AgentMessage::body)>);
  return kNames[message.body.index()];
}

// The messages that never get to OnReport(): not events, or handled before. A new kind of message
// needs a line here or an OnReport().
template <typename Body>
constexpr bool kIsElsewhere = std::is_same_v<Body, Join> || std::is_same_v<Body, Renewal> ||
                              std::is_same_v<Body, Heartbeat> || std::is_same_v<Body, Leave> ||
                              std::is_same_v<Body, UnknownKind>;

// Notes carry the sender's name, whatever the message says.
WorkerFailure Signed(const Node& node, WorkerFailure failure) {
  failure.node_id = node.id;
  failure.hostname = node.info.hostname;
  return failure;
}

// The last sign of life of a member that is overdue or away, because it may be the cause of
// failures elsewhere. Infinite = all are well.
Instant SilentSince(const Round& round, const Roster& roster, Instant now, const ProbePace& pace) {
  Instant since = Instant::Infinite();
  for (const RoundMember& member : round.members()) {
    if (member.node_order == 0) continue;
    const Node& node = *roster.table().FindByOrder(member.node_order);
    if (!node.stream) {
      since = std::min(since, node.closed_at);
    } else if (node.IsSilent(now, 2 * pace.interval)) {
      since = std::min(since, node.proof);
    }
  }
  return since;
}

}  // namespace

void Job::OnMessage(const Node& node, const AgentMessage& message) {
  absl::Status status = gate_.CheckMessage(node, message);
  if (!status.ok()) return BreakOff(node, std::move(status));
  if (const Renewal* renewal = std::get_if<Renewal>(&message.body)) {
    return OnRenewal(node, *renewal, message.generation);
  }
  if (std::holds_alternative<UnknownKind>(message.body) && message.sequence == 0) return;
  const uint64_t processed = node.processed;
  switch (roster_.Change(node, [&](Node& n) { return n.TakeSequence(message.sequence); })) {
    case Node::Sequence::kNext:
      OnEvent(node, message);
      if ((processed + 1) % kUnrecordedMax == 0) recorder_.Note();  // or its agent keeps them all
      return;
    case Node::Sequence::kSeen:
      return;
    case Node::Sequence::kGap:
      return BreakOff(node, absl::InvalidArgumentError(
                                absl::StrCat("event ", message.sequence, " came after ", processed,
                                             ": events of an agent count up by one")));
  }
}

void Job::OnRenewal(const Node& node, const Renewal& renewal, Generation generation) {
  const std::optional<Instant> sent = probes_.SentAt(renewal.nonce);
  if (!sent || phase_ == JobPhase::kEnded) return;
  const bool is_member = node.group_rank && generation == generation_;
  const bool awaited = phase_ == JobPhase::kClosing && node.group_rank &&
                       round_->member(*node.group_rank).state == RoundMember::State::kStopping;
  NoteHeard(node);
  const bool is_new = !node.answered;
  const bool was_silent = node.silent;
  const absl::Duration silence = now_ - node.proof;
  // An answer that arrived while the service was held up counts as if it had been read at once
  // (R4).
  const absl::Duration forgiven = probes_.ForgivenSince(renewal.nonce, now_);
  bool told = false;
  bool idle = false;
  std::vector<uint32_t> lost_gpus;
  roster_.Change(node, [&](Node& n) {
    n.Renew(now_, *sent, pace().lease + forgiven);
    told = is_member && n.told.TakeProgress(now_, renewal, n.info.worker_count);
    lost_gpus = n.told.TakeGpus(now_, renewal.gpus);
    if (renewal.warm) n.told.warm = renewal.warm;
    if (renewal.checkpoint_bytes) n.told.checkpoint_bytes = renewal.checkpoint_bytes;
    idle = n.ShowsIdle(renewal.nonce) && awaited;
    if (idle) n.EndStopping();
  });
  for (const uint64_t word : node.told.progress) {
    if (!told || word == 0 || ProgressPhaseOf(word) == ProgressPhase::kCounted) continue;
    record_.SawStep(ProgressStepOf(word));
  }
  if (told) SawProgress(node, renewal);
  if (is_member && renewal.warm) record_.SawWarm(*node.group_rank, *renewal.warm);
  // Reported once: a worker on a lost GPU hangs, or ends by an error that doesn't name it.
  for (const uint32_t gpu : lost_gpus) {
    effects_.AddNote("gpu_lost", {{"node", node.id.value()}, {"gpu", absl::StrCat(gpu)}});
  }
  if (idle) round_->SetState(*node.group_rank, RoundMember::State::kStopped);
  RefuseRivals(node);
  if (was_silent && !node.silent) return NoteSilenceOver(node, silence);
  if (is_new) ReconsiderSilent();
}

// Updates the cost of a restart and the time accounting. Requires: the node is a member, and has
// reported its progress.
void Job::SawProgress(const Node& node, const Renewal& renewal) {
  const auto trains = [](uint64_t word) {
    const ProgressPhase phase = ProgressPhaseOf(word);
    return phase == ProgressPhase::kTrain || phase == ProgressPhase::kCounted;
  };
  if (std::any_of(node.told.progress.begin(), node.told.progress.end(), trains)) {
    cost_.SawStep(now_);
  }
  if (!renewal.time) return;
  cost_.SawTime(now_, *node.group_rank, *renewal.time);
  // The record of another machine's service doesn't say how long ago the generation was formed; an
  // agent knows how long its workers have been assigned.
  if (ledger_.recovers()) {
    const absl::Duration told = renewal.time->spent.Total() + renewal.time->last;
    round_->FormedBefore(now_ - std::min(told, kAgeMax));
    ledger_.FormedBefore(round_->formed());
  }
  ledger_.Report(now_, *node.group_rank, *renewal.time, /*done=*/false);
}

void Job::OnEvent(const Node& node, const AgentMessage& message) {
  const auto ignore = [&](const std::string& why) {
    effects_.AddNote("ignored",
                     {{"node", node.id.value()}, {"message", MessageName(message)}, {"why", why}});
  };
  if (phase_ == JobPhase::kEnded) return ignore("the job has ended");
  const bool is_unknown = std::holds_alternative<UnknownKind>(message.body);
  if (is_unknown) return ignore("its kind is of a later release");
  if (const Leave* leave = std::get_if<Leave>(&message.body)) return OnLeave(node, *leave);
  const GroupStopped* cleaned = std::get_if<GroupStopped>(&message.body);
  if (cleaned != nullptr && node.cleaning != Generation() && message.generation == node.cleaning) {
    if (!cleaned->clean) return LoseNode(node, LossProof::kUnclean);
    standby_due_.Mark(node.order);
    roster_.Change(node, [&](Node& n) { n.EndStopping(cleaned->master_port); });
    return ReconsiderSilent();
  }
  if (!node.group_rank || message.generation != generation_) {
    return ignore(absl::StrCat("generation ", message.generation.value(), " is not current"));
  }
  const bool stopped = round_->member(*node.group_rank).state == RoundMember::State::kStopped;
  if (stopped && !std::holds_alternative<Preempt>(message.body)) {
    return ignore("its workers were stopped already");
  }
  // The report's effect is decided when the round closes.
  if (std::holds_alternative<WorkerFailed>(message.body) ||
      std::holds_alternative<GroupStopped>(message.body) ||
      std::holds_alternative<Preempt>(message.body)) {
    roster_.Change(node, [](Node& n) { n.AwaitSettlement(); });
  }
  std::visit(
      [&]<typename Report>(const Report& report) {
        if constexpr (!kIsElsewhere<Report>) OnReport(node, report);
      },
      message.body);
}

void Job::OnLeave(const Node& node, const Leave& leave) {
  effects_.AddNote("node_left", {{"node", node.id.value()}, {"why", leave.reason}});
  if (leave.end_job) {
    return EndJob(leave.preempted ? Outcome::kPreempted : Outcome::kStopped,
                  leave.preempted ? Rule::kPreempted : Rule::kStopped,
                  absl::StrCat(leave.reason, " on ", node.info.hostname));
  }
  const std::string reason = absl::StrCat(NodeText(node), " left: ", leave.reason);
  const bool was_member = node.group_rank.has_value();
  EndStream(node, absl::OkStatus());
  RemoveNode(node, {.state = RoundMember::State::kLeft, .reason = reason});
  if (!leave.preempted || (!was_member && phase_ != JobPhase::kForming)) return;
  preemption_.NoteLeft(reason);
  if (phase_ == JobPhase::kForming) EndPreempted();
}

// ------------------------------------------------------------- as members

void Job::OnReport(const Node& node, const WorkersStarted& /*started*/) {
  if (!round_->SetStarted(*node.group_rank)) return;
  effects_.AddNote("started", {{"generation", absl::StrCat(generation_.value())}});
}

void Job::OnReport(const Node& node, const WorkerFailed& failed) {
  if (!round_->AddFailure(*node.group_rank, Signed(node, failed.failure), now_)) return;
  if (phase_ == JobPhase::kClosing) return AbandonStop();
  // A hanging worker has hung since its last mark.
  const Instant fault =
      failed.failure.hung ? Instant() : std::min(now_, SilentSince(*round_, roster_, now_, pace()));
  BeginClosing({.reason = FailureText(round_->failures().front().failure),
                .name = "worker_failed",
                .fault = fault});
}

void Job::OnReport(const Node& node, const GroupSucceeded& succeeded) {
  const uint32_t rank = *node.group_rank;
  if (succeeded.time) ledger_.Report(now_, rank, *succeeded.time, /*done=*/true);
  round_->SetSucceeded(rank, now_);
  recorder_.Note();
  if (round_->all_succeeded()) {
    return EndJob(Outcome::kSucceeded, Rule::kAllSucceeded,
                  absl::StrCat("every rank of generation ", generation_.value(), " ended with 0"));
  }
  // The node's workers ended before the stop step; the other nodes settle when theirs have reached
  // it.
  if (phase_ == JobPhase::kClosing && preemption_.committed()) return SendStop(node);
  CarryOut(preemption_.Drop(now_, rank));
}

void Job::OnReport(const Node& node, const GroupStopped& stopped) {
  const uint32_t rank = *node.group_rank;
  for (const WorkerFailure& failure : stopped.failures) {
    round_->AddFailure(rank, Signed(node, failure), now_);
  }
  round_->AddLeft(rank, stopped.left);
  round_->AddStep(stopped.step);
  round_->AddKept(stopped.kept);
  if (stopped.step) record_.SawStep(*stopped.step);
  if (stopped.time) ledger_.Report(now_, rank, *stopped.time, /*done=*/false);
  if (!stopped.clean) return LoseNode(node, LossProof::kUnclean);
  round_->SetState(rank, RoundMember::State::kStopped);
  roster_.Change(node, [&](Node& n) { n.EndStopping(stopped.master_port); });
  if (phase_ != JobPhase::kRunning) return;
  BeginClosing(
      {.reason = round_->failures().empty()
                     ? absl::StrCat("the workers of ", NodeText(node), " were stopped there")
                     : FailureText(round_->failures().front().failure),
       .name = "group_stopped"});
}

void Job::OnReport(const Node& node, const HangReport& report) {
  if (phase_ != JobPhase::kRunning) return;
  const auto node_of = [this](uint32_t rank) -> const Node& {
    return *roster_.table().FindByOrder(round_->member(rank).node_order);
  };
  const HangStep step = inquiry_.Add(now_, *round_, *node.group_rank, report);
  for (const uint32_t rank : step.ask) {
    effects_.SendTo(node_of(rank),
                    ReportProgress{.generation = generation_, .sample = report.sample});
  }
  if (!step.over.empty()) {
    effects_.AddNote("hang_over",
                     {{"generation", absl::StrCat(generation_.value())},
                      {"ranks", Bounded(absl::StrJoin(step.over, ","), kTextBytesMax)}});
  }
  if (!step.verdict) return;
  effects_.AddNote(step.verdict->end ? "hang" : "hang_named",
                   {{"generation", absl::StrCat(generation_.value())},
                    {"ranks", Bounded(absl::StrJoin(step.verdict->guilty, ","), kTextBytesMax)},
                    {"evidence", step.verdict->evidence}});
  for (auto& [rank, order] : HangOrders(*step.verdict, *round_)) {
    effects_.SendTo(node_of(rank), std::move(order));
  }
}

void Job::OnReport(const Node& node, const Preempt& preempt) {
  effects_.AddNote("preempt",
                   {{"generation", absl::StrCat(generation_.value())},
                    {"node", node.id.value()},
                    {"reason", preempt.reason},
                    {"deadline_ms", absl::StrCat(absl::ToInt64Milliseconds(preempt.deadline))}});
  const std::string& host = node.info.hostname;
  std::optional<std::set<uint32_t>> agreeing;
  if (phase_ == JobPhase::kRunning) agreeing = round_->NotSucceeded();
  CarryOut(preemption_.Announce(now_, host, preempt, std::move(agreeing)));
}

void Job::OnReport(const Node& node, const StopPrepared& prepared) {
  CarryOut(preemption_.Add(now_, *node.group_rank, prepared));
}

// ------------------------------------------------------------- orders

// Asks a member to stop its workers; the bound runs from the first time (R3).
void Job::SendStop(const Node& node) {
  const uint32_t rank = *node.group_rank;
  round_->SetState(rank, RoundMember::State::kStopping);
  const bool saves = preemption_.committed() && !round_->member(rank).succeeded;
  const absl::Duration within =
      saves ? std::max(preemption_.until() - now_, absl::Milliseconds(1)) : absl::ZeroDuration();
  roster_.Change(node,
                 [&](Node& n) { n.BeginStopping(now_ + within + spec().stop_grace + kStopSlack); });
  if (saves) {
    return effects_.SendTo(node, CommitStop{.generation = generation_,
                                            .step = preemption_.step(),
                                            .within = within,
                                            .reason = closing_.reason()});
  }
  effects_.SendTo(node, StopWorkers{.generation = generation_, .reason = closing_.reason()});
}

// Called again if the question may have been lost with a stream.
void Job::SendQuestion(const Node& node) {
  if (!node.group_rank || !preemption_.awaits(*node.group_rank)) return;
  effects_.SendTo(node, preemption_.Question(generation_));
}

void Job::SendDrain(const Node& node) {
  const DrainedNode* drained = drains_.Find(node.id);
  effects_.SendTo(node, Drain{drained == nullptr ? "" : drained->reason});
}

// Asks agents to name their workers that still run after other nodes have ended well
// (docs/LOGS.md).
void Job::SendLaggards() {
  if (phase_ != JobPhase::kRunning) return;
  std::vector<std::string> ended;
  for (const RoundMember& member : round_->members()) {
    if (member.succeeded) ended.push_back(member.node_id.value());
  }
  for (const uint32_t rank : round_->TakeLaggards(now_)) {
    const RoundMember& member = round_->member(rank);
    if (member.node_order == 0) continue;
    HungWorkers order{.generation = generation_,
                      .reason = absl::StrCat(kEndedEvidence, "the ranks of ", ListText(ended))};
    for (uint32_t i = 0; i < member.worker_count; ++i) order.local_ranks.push_back(i);
    effects_.SendTo(*roster_.table().FindByOrder(member.node_order), std::move(order));
  }
}

void Job::SendProbes() {
  if (roster_.table().connected() == 0 || phase_ == JobPhase::kEnded) return probes_.Rest();
  SendLaggards();
  const uint64_t nonce =
      probes_.Tick(now_, spec().lease, roster_.table().connected(), spec().nodes_min);
  const absl::Duration lease = pace().lease;
  const Probe probe{.nonce = nonce, .lease = lease > spec().lease ? lease : absl::Duration()};
  for (const auto& [order, node] : roster_.nodes()) {
    Probe own = probe;
    own.processed_sequence = Confirmed(node);
    effects_.SendTo(node, own);
  }
  standby_due_.MarkAll();
}

}  // namespace ddprun::rendezvous
