#include "rendezvous/core/job/job.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/text.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {
namespace {

// In builds with sanitizers every step of a small job ends with the check of all invariants.
#ifdef DDPRUN_WHOLE_CHECKS
constexpr bool kWholeChecks = true;
#else
constexpr bool kWholeChecks = false;
#endif
constexpr size_t kWholeCheckNodesMax = 1000;

LossProof ProofOf(Roster::Bound bound) {
  switch (bound) {
    case Roster::Bound::kGrace:
      return LossProof::kStreamClosed;
    case Roster::Bound::kLease:
      return LossProof::kLeaseExpired;
    case Roster::Bound::kStop:
      return LossProof::kUnclean;
  }
  return LossProof::kUnclean;
}

// Practically random between jobs, and the same in each run of a simulation. From 0 to 1.
double JitterOf(Term term, Generation generation) {
  constexpr uint64_t kParts = 1000;
  Rng rng(term.value() ^ generation.value());
  return static_cast<double>(rng.Below(kParts)) / static_cast<double>(kParts);
}

std::string TooFewText(const JobSpec& spec, const Roster& roster, const Forming& forming) {
  std::vector<std::string> here;
  for (const auto& [order, node] : roster.nodes()) {
    if (node.counted) here.push_back(node.info.hostname);
  }
  const std::string missing = roster.MissingText(spec.nodes_min);
  return absl::StrCat("only ", roster.candidates(), " of ", CountText(spec.nodes_min, "node"),
                      " came within the join timeout of ", DurationText(spec.join_timeout),
                      forming.first() ? "" : absl::StrCat(" after ", forming.why()),
                      "; here: ", ListText(here),
                      missing.empty() ? "" : absl::StrCat("; missing: ", missing));
}

StepEffects::Fields RoundClosedFields(Generation generation, const Settlement& settled) {
  const RestartDecision& decision = settled.decision;
  StepEffects::Fields fields = {{"generation", absl::StrCat(generation.value())},
                                {"blame", BlameName(decision.blame)},
                                {"rule", RuleName(decision.rule)},
                                {"restart_count", absl::StrCat(decision.history.restart_count)}};
  if (decision.pause > absl::ZeroDuration()) {
    fields.emplace_back("pause_ms", absl::StrCat(absl::ToInt64Milliseconds(decision.pause)));
  }
  if (settled.blamed) fields.emplace_back("began_on", settled.blamed->value());
  return fields;
}

Verdict VerdictOf(Outcome outcome, Rule rule, std::string reason,
                  const std::optional<Round>& round) {
  Verdict verdict{.outcome = outcome,
                  .reason = Bounded(std::move(reason), kTextBytesMax),
                  .rule = RuleName(rule)};
  if (!round) return verdict;
  FirstCause cause = FindFirstCause(round->failures());
  // After a loss, failures are its consequences (R7).
  const bool failed = outcome == Outcome::kFailed || outcome == Outcome::kFailedForGood;
  if (failed && !round->any_gone()) verdict.first_causes = cause.ties;
  verdict.failures = std::move(cause.failures);
  if (verdict.failures.empty()) return verdict;
  // The failing node's own fact has a time and is there already, so only other nodes' ranks are
  // added.
  WorkerFailure& first = verdict.failures.front();
  const std::vector<uint32_t> left = round->LeftBeside(first.node_id);
  if (Weigh(first) == Evidence::kPeerError && !left.empty()) {
    first.facts.push_back(LeftText(left));
  }
  return verdict;
}

}  // namespace

Job::Job(Term term, std::string token, bool keeps)
    : gate_(term, std::move(token)), recorder_(keeps) {}

std::vector<Effect> Job::Step(Instant now, const Event& event) {
  DDPRUN_CHECK(now >= now_, "time went back");
  DDPRUN_CHECK(effects_.empty(), "effects of a former step");
  JudgeStall(now);
  now_ = now;
  if (recovery_.TakeNews()) NotifyRecovery();
  std::visit([this](const auto& e) { On(e); }, event);
  Advance();
  SendDueStandbys();
  if (recorder_.TakeDue()) effects_.PutFirst(Persist{});
  const char* broken = BrokenPhase();
  DDPRUN_CHECK(*broken == '\0', absl::StrCat(broken, "\n", DebugString()));
  if (kWholeChecks && roster_.nodes().size() <= kWholeCheckNodesMax) {
    const std::string whole = BrokenInvariant();
    DDPRUN_CHECK(whole.empty(), absl::StrCat(whole, "\n", DebugString()));
  }
  return effects_.TakeAll();
}

void Job::On(const StopRequested& event) {
  if (phase_ != JobPhase::kEnded) EndJob(Outcome::kStopped, Rule::kStopped, event.reason);
}

// A job doesn't fail because its record can't be written: it only depends on its service again.
void Job::On(const PersistDone& event) {
  if (recorder_.TakeFirst()) Excuse(now_ + pace().lease);
  if (event.status.ok()) return roster_.ChangeAll([](Node& node) { node.Confirm(); });
  if (!recorder_.keeps()) return;
  recorder_.Lose(event.status);
  effects_.AddNote("journal_lost", {{"why", recorder_.lost()}});
}

void Job::On(const TimerDue& /*event*/) {
  while (const std::optional<Roster::Overdue> overdue = roster_.TakeOverdue(now_)) {
    const Node& node = *overdue->node;
    if (phase_ == JobPhase::kEnded) {
      RemoveNode(node, {.state = RoundMember::State::kLost});
      continue;
    }
    if (ProvesLoss(*overdue)) LoseNode(node, ProofOf(overdue->bound));
  }
  if (now_ >= probes_.due()) SendProbes();
}

// ------------------------------------------------------------- time

Instant Job::NextDeadline() const {
  return std::min({roster_.deadline(), probes_.due(), PhaseDeadline()});
}

Instant Job::PhaseDeadline() const {
  switch (phase_) {
    case JobPhase::kForming:
      if (!gate_.open() || recovery_.open()) return Instant::Infinite();
      return forming_.Decide(spec(), roster_.candidates(), now_).until;
    case JobPhase::kRunning:
      if (preemption_.agreeing()) return preemption_.deadline();
      if (recovery_.open() || roster_.silent() > 0) return Instant::Infinite();
      // Also when the end of a quarantine makes a newcomer.
      return std::min(growth_.Decide(spec(), *round_, Newcomers(), now_).until,
                      blame_.NextRelease(now_));
    case JobPhase::kClosing:
      return Instant::Infinite();  // the members have their own bounds
    case JobPhase::kEnded:
      return farewell_.deadline();
  }
  return Instant::Infinite();
}

// If the service itself was held up, silence proves nothing (R4). The measure is the deadline that
// has been due for longest, not the last event: a loop with too much to read serves no deadline
// either.
void Job::JudgeStall(Instant now) {
  const Instant due = std::max(NextDeadline(), forgiven_until_);
  if (now <= due) return;
  if (roster_.empty()) forgiven_until_ = now;  // a node that joins after the stall isn't affected
  if (roster_.empty()) return;
  const absl::Duration stall = now - due;
  const uint64_t vanished = recovery_.vanished();
  const ProbePace least = vanished == 0 ? pace() : ProbePace(kVanishedLease);
  if (stall <= least.pause()) return;
  roster_.ChangeAll([&](Node& node) {
    node.Extend(now, stall, node.order == vanished ? least : pace(), spec().reconnect_grace);
  });
  probes_.Forgive(stall);
  forgiven_until_ = now;
  effects_.AddNote("stall", {{"ms", absl::StrCat(absl::ToInt64Milliseconds(stall))}});
}

// Whether an expired lease proves a loss. It doesn't if no probe could be sent in it; if no node at
// all is heard, because then this service is cut off and keeps a running generation; or if the
// member is worth waiting for (R4). False: the lease now ends later.
bool Job::ProvesLoss(const Roster::Overdue& overdue) {
  if (overdue.bound != Roster::Bound::kLease) return true;
  if (recorder_.withholds()) {
    Excuse(now_ + pace().interval);
    return false;
  }
  if (phase_ != JobPhase::kRunning) return true;
  if (recovery_.open()) return !AwaitSilent(*overdue.node);
  const bool hears_nobody = HearsNobody(roster_.nodes(), now_, pace().lease);
  const bool begins = !isolation_.open();
  if (!begins && !hears_nobody) {
    EndIsolation();
    return false;
  }
  if (!isolation_.Holds(now_, hears_nobody)) return !AwaitSilent(*overdue.node);
  Excuse(now_ + pace().interval);
  if (begins) effects_.AddNote("isolated", {{"nodes", absl::StrCat(roster_.nodes().size())}});
  return false;
}

// No lease ends before `until`.
void Job::Excuse(Instant until) {
  roster_.ChangeAll([until](Node& node) { node.Excuse(until); });
}

// A node was heard. The one on this machine proves nothing about the network.
void Job::NoteHeard(const Node& node) {
  if (isolation_.open() && !node.info.hosts_service) EndIsolation();
}

// A node is heard again. The others get a lease to come back, too.
void Job::EndIsolation() {
  const absl::Duration lasted = now_ - isolation_.since();
  isolation_.Close();
  const Instant until = now_ + std::max(pace().lease, kRecoveryLease);
  roster_.ChangeAll([until](Node& node) { node.Pardon(until); });
  effects_.AddNote("isolation_over", {{"ms", absl::StrCat(absl::ToInt64Milliseconds(lasted))}});
}

// ------------------------------------------------------------- phases

void Job::Advance() {
  while (AdvanceOnce()) {
  }
}

// Takes the next phase transition if it is due; false if none is.
bool Job::AdvanceOnce() {
  forming_.Watch(now_, phase_ == JobPhase::kForming && gate_.open() &&
                           roster_.candidates() >= spec().nodes_min);
  growth_.Watch(now_, phase_ == JobPhase::kRunning && Newcomers() > 0);
  switch (phase_) {
    case JobPhase::kForming: {
      if (!gate_.open() || recovery_.open()) return false;
      const FormingDecision decision = forming_.Decide(spec(), roster_.candidates(), now_);
      if (decision.action == FormingDecision::Action::kWait) return false;
      decision.action == FormingDecision::Action::kForm
          ? FormGeneration(decision.rule)
          : EndJob(Outcome::kFailed, decision.rule, TooFewText(spec(), roster_, forming_));
      return true;
    }
    case JobPhase::kRunning:
      if (preemption_.agreeing()) {  // the preemption ends the generation anyway
        CarryOut(preemption_.OnTimer(now_));
        return phase_ != JobPhase::kRunning;
      }
      // Growth would lose silent members, which may be back in time.
      if (recovery_.open() || roster_.silent() > 0) return false;
      if (!growth_.Decide(spec(), *round_, Newcomers(), now_).close) return false;
      BeginClosing({.reason = absl::StrCat(CountText(Newcomers(), "node"), " joined"),
                    .name = "growth",
                    .for_growth = true});
      return true;
    case JobPhase::kClosing:
      if (!round_->settled() || recovery_.open()) return false;
      CloseRound();
      return true;
    case JobPhase::kEnded:
      FinishFarewell();
      return false;
  }
  return false;
}

void Job::FormGeneration(Rule rule) {
  const Choice choice = ChooseNodes(spec(), roster_, blame_, forming_.previous_ranks(), now_);
  for (const Choice::LeftOut& out : choice.left_out) {
    effects_.AddNote("node_left_out", {{"node", out.node->id.value()},
                                       {"failures", absl::StrCat(out.failures)},
                                       {"rule", RuleName(Rule::kQuarantine)}});
  }
  const Node& first = *choice.ranked.front();
  const RestartHistory& history = closing_.history();
  reason_ = forming_.first()
                ? absl::StrCat(CountText(choice.ranked.size(), "node"), " came together")
                : forming_.why();
  generation_ = generation_.Next();
  round_.emplace(
      generation_, now_, PlaceNodes(choice.ranked),
      RoundTerms{.master_addr = first.info.address,
                 .master_port = roster_.Change(first, [](Node& n) { return n.UsePort(); }),
                 .store_address = first.info.store_address,
                 .reason = reason_,
                 .rule = RuleName(rule),
                 .restart_count = history.restart_count,
                 .restarts_charged = history.restarts_charged});
  phase_ = JobPhase::kRunning;
  growth_.NoteFormed(static_cast<uint32_t>(choice.ranked.size()));
  if (preemption_.committed()) record_.StoppedAt(preemption_.step());
  preemption_.Open();
  closing_.Open();
  ledger_.Form(now_, round_->members().size());
  cost_.Begin(now_);

  recorder_.Note();
  effects_.AddNote("generation", {{"generation", absl::StrCat(generation_.value())},
                                  {"world", absl::StrCat(round_->world_size())},
                                  {"nodes", absl::StrCat(choice.ranked.size())},
                                  {"ranks", round_->RanksText()},
                                  {"reason", reason_},
                                  {"rule", RuleName(rule)},
                                  {"restart_count", absl::StrCat(history.restart_count)}});
  for (uint32_t rank = 0; rank < choice.ranked.size(); ++rank) {
    const Node& node = *choice.ranked[rank];
    roster_.Change(node, [&](Node& n) { n.BecomeMember(rank); });
    effects_.SendTo(node, round_->AssignmentOf(rank, record_.begun_step()));
  }
  record_.Begin({.generation = generation_,
                 .world_size = round_->world_size(),
                 .nodes = static_cast<uint32_t>(choice.ranked.size()),
                 .reason = reason_,
                 .rule = RuleName(rule),
                 .began = now_});
  standby_due_.MarkAll(roster_.candidates() > 0);
}

void Job::BeginClosing(const Trigger& trigger) {
  DDPRUN_CHECK(phase_ == JobPhase::kRunning, PhaseName(phase_));
  phase_ = JobPhase::kClosing;
  reason_ = trigger.reason;
  preemption_.BeginClosing();  // another trigger came first
  inquiry_.Close();
  // Members that weren't heard may be on the way back, unless all time for that is over.
  if (isolation_.open() && trigger.name != "node_lost") EndIsolation();
  isolation_.Close();
  const absl::Duration uptime = now_ - round_->formed();
  growth_.NoteEnd(uptime);
  if (trigger.for_growth) {
    growth_.Begin(static_cast<uint32_t>(round_->members().size()), Newcomers());
  }
  closing_.Begin(now_, trigger, uptime);
  recorder_.Note();
  record_.End(now_, reason_);
  ledger_.Close(now_, trigger.fault);
  effects_.AddNote("round_closing", {{"generation", absl::StrCat(generation_.value())},
                                     {"reason", reason_},
                                     {"trigger", trigger.name}});
  for (uint32_t rank = 0; rank < round_->members().size(); ++rank) {
    const RoundMember& member = round_->member(rank);
    if (member.gone() || member.state == RoundMember::State::kStopped) continue;
    if (member.node_order == 0) {  // it was done, so its loss did no harm until now (R8)
      effects_.AddNote("node_lost", {{"node", member.node_id.value()}, {"why", "done and gone"}});
      closing_.NoteLoss(
          absl::StrCat("node ", member.node_id.value(), " was done and gone when ", reason_));
      round_->SetState(rank, RoundMember::State::kLost);
      continue;
    }
    const Node& node = *roster_.table().FindByOrder(member.node_order);
    if (node.stream && !node.silent) SendStop(node);
  }
  LoseSilent();
}

void Job::CloseRound() {
  if (EndPreempted()) return;
  const Settlement settled = closing_.Settle(spec(), *round_, JitterOf(gate_.term(), generation_),
                                             growth_.Missing(Newcomers()));
  const RestartDecision& decision = settled.decision;
  record_.Explain(settled.why);
  if (settled.blamed) blame_.Add(*settled.blamed, settled.blamed_host, now_);
  effects_.AddNote("round_closed", RoundClosedFields(generation_, settled));
  if (decision.verdict) return EndJob(*decision.verdict, decision.rule, WithDecision(settled));

  // The generation is over; its nodes are candidates again.
  recorder_.Note();
  const Round closed = *std::exchange(round_, std::nullopt);
  phase_ = JobPhase::kForming;
  ledger_.Settle(now_);
  forming_.RememberRanks(closed.members());
  forming_.BeginNext(now_,
                     decision.blame == Blame::kGrowth ? RoundCause::kGrowth : RoundCause::kFault,
                     settled.why, decision.rule, decision.pause);
  for (const RoundMember& member : closed.members()) {
    if (member.node_order == 0) continue;
    roster_.Change(*roster_.table().FindByOrder(member.node_order),
                   [](Node& node) { node.BecomeWaiting(); });
  }
  reason_ = forming_.pausing(now_)
                ? absl::StrCat(decision.why, " (rule ", RuleName(decision.rule), "): ", settled.why)
                : absl::StrCat("waiting for nodes after ", settled.why);
  standby_due_.MarkAll();
}

// ------------------------------------------------------------- preemption

void Job::CarryOut(Preemption::Action action) {
  if (action == Preemption::Action::kNone) return;
  const std::string generation = absl::StrCat(generation_.value());
  const std::string round = absl::StrCat(preemption_.round());
  const std::string step = absl::StrCat(preemption_.step());
  switch (action) {
    case Preemption::Action::kNone:
      return;
    case Preemption::Action::kAsk:
      for (const RoundMember& member : round_->members()) {
        if (member.node_order == 0) continue;
        SendQuestion(*roster_.table().FindByOrder(member.node_order));
      }
      if (preemption_.step() == 0) return;
      return effects_.AddNote("stop_prepared",
                              {{"generation", generation}, {"round", round}, {"step", step}});
    case Preemption::Action::kCommit:
      effects_.AddNote("stop_committed",
                       {{"generation", generation}, {"round", round}, {"step", step}});
      return BeginClosing({.reason = preemption_.why(), .name = preemption_.trigger()});
    case Preemption::Action::kGiveUp:
      effects_.AddNote("stop_given_up",
                       {{"generation", generation}, {"why", preemption_.given_up()}});
      return BeginClosing({.reason = preemption_.why(), .name = preemption_.trigger()});
  }
}

// A member ends without reaching the stop step, while others save there.
void Job::AbandonStop() {
  if (!preemption_.Abandon()) return;
  for (const RoundMember& member : round_->members()) {
    if (member.state != RoundMember::State::kStopping || member.node_order == 0) continue;
    SendStop(*roster_.table().FindByOrder(member.node_order));
  }
}

// Ends the job if it can't go on without the preempted nodes. Returns whether it has ended.
bool Job::EndPreempted() {
  if (recovery_.open()) return false;  // it isn't known which nodes are left
  uint32_t left = roster_.candidates();
  if (round_) {
    for (const RoundMember& member : round_->members()) {
      const Node* node = roster_.table().FindByOrder(member.node_order);
      const bool stays = node != nullptr && !node->draining;
      if (member.state == RoundMember::State::kStopped && stays) ++left;
    }
  }
  std::optional<std::string> why = preemption_.EndsJob(spec(), left);
  if (!why) return false;
  EndJob(Outcome::kPreempted, Rule::kPreempted, *std::move(why));
  return true;
}

// ------------------------------------------------------------- the end

void Job::EndJob(Outcome outcome, Rule rule, std::string reason) {
  Verdict verdict = VerdictOf(outcome, rule, std::move(reason), round_);
  verdict.generation = generation_;
  verdict.restart_count = closing_.history().restart_count;
  const Audience audience = AudienceOf(roster_.nodes());
  phase_ = JobPhase::kEnded;
  reason_ = verdict.reason;
  round_.reset();
  inquiry_.Close();
  isolation_.Close();
  preemption_.BeginClosing();
  record_.End(now_, reason_);
  ledger_.End(now_);
  probes_.Rest();
  recovery_.Close();
  roster_.Retire();
  farewell_.Begin(now_, std::move(verdict), audience);
  const Verdict& told = farewell_.verdict();
  recorder_.Note();
  effects_.AddNote(
      "verdict", {{"outcome", OutcomeName(outcome)}, {"reason", told.reason}, {"rule", told.rule}});
  for (const auto& [order, node] : roster_.nodes()) {
    effects_.SendTo(node, farewell_.WordsFor(node.id));
  }
}

// The job can be forgotten when every reachable agent has its verdict and has closed its stream.
void Job::FinishFarewell() {
  const bool anybody = roster_.table().stream_count() > 0 || !roster_.empty();
  if (!farewell_.Finish(now_, anybody)) return;
  for (const auto& [order, node] : roster_.nodes()) {
    if (node.stream) EndStream(node, absl::OkStatus());
  }
  roster_.ChangeAll([](Node& node) { node.GiveUp(); });
  effects_.Put(Ended{.outcome = farewell_.verdict().outcome});
}

}  // namespace ddprun::rendezvous
