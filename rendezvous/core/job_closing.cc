#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/rng.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/describe.h"
#include "rendezvous/core/job.h"
#include "rendezvous/core/timing.h"

// What the end of a generation costs, and the verdict (R7, R8).
namespace ddprun::rendezvous {

RestartDecision Job::JudgeRound(const FirstCause& cause) const {
  // The jitter is as good as random between jobs, and the same in each run of a simulation.
  constexpr uint64_t kParts = 1000;
  Rng jitter(term_.value() ^ generation_.value());
  return DecideRestart(
      spec_, history_,
      {.any_gone = round_->any_gone(),
       .for_growth = for_growth_,
       .uptime = uptime_,
       .step = round_->step(),
       .cause = cause.failures.empty() ? nullptr : &cause.failures.front(),
       .jitter = static_cast<double>(jitter.Below(kParts)) / static_cast<double>(kParts)});
}

void Job::CloseRound() {
  if (EndPreempted()) return;
  const FirstCause cause = FindFirstCause(round_->failures());
  const RestartDecision decision = JudgeRound(cause);
  history_ = decision.history;
  rule_ = decision.rule;
  const bool pauses = decision.pause > absl::ZeroDuration();
  Fields fields = {{"generation", absl::StrCat(generation_.value())},
                   {"blame", BlameName(decision.blame)},
                   {"rule", RuleName(decision.rule)},
                   {"restart_count", absl::StrCat(history_.restart_count)}};
  if (pauses) {
    fields.emplace_back("pause_ms", absl::StrCat(absl::ToInt64Milliseconds(decision.pause)));
  }
  const std::optional<NodeId> blamed = BlamedNode(cause);
  if (blamed && decision.blame == Blame::kWorker) {
    fields.emplace_back("began_on", blamed->value());
    blame_.Add(*blamed, cause.failures.front().hostname, now_);
  }
  AddNote("round_closed", std::move(fields));
  cause_text_ = decision.blame == Blame::kMembership ? loss_reason_ : close_reason_;
  if (decision.blame == Blame::kWorker && !cause.failures.empty()) {
    cause_text_ = FailureText(cause.failures.front());
  }
  if (decision.verdict) {
    return EndJob(
        *decision.verdict, decision.rule,
        decision.why.empty() ? cause_text_ : absl::StrCat(cause_text_, " (", decision.why, ")"));
  }
  ReleaseMembers();
  cause_ = decision.blame == Blame::kGrowth ? RoundCause::kGrowth : RoundCause::kFault;
  forming_since_ = now_ + decision.pause;
  min_reached_ = Instant::Infinite();
  reason_ = pauses
                ? absl::StrCat(decision.why, " (rule ", RuleName(decision.rule), "): ", cause_text_)
                : absl::StrCat("waiting for nodes after ", cause_text_);
  standby_due_all_ = true;
}

// The generation is no more; its nodes are candidates again.
void Job::ReleaseMembers() {
  previous_ranks_.clear();
  for (const RoundMember& member : round_->members()) previous_ranks_.push_back(member.node_id);
  const Round closed = *std::exchange(round_, std::nullopt);
  ledger_.Settle(now_);
  phase_ = Phase::kForming;
  for (const RoundMember& member : closed.members()) {
    if (member.node_order == 0) continue;
    Node& node = *nodes_.FindByOrder(member.node_order);
    node.group_rank.reset();
    node.progress.clear();
    Refresh(node);
  }
}

// ------------------------------------------------------------- the end

void Job::EndJob(Outcome outcome, Rule rule, std::string reason) {
  FirstCause cause;
  if (round_) cause = FindFirstCause(round_->failures());
  // After a loss, failures are its consequences (R7).
  const bool failed = outcome == Outcome::kFailed || outcome == Outcome::kFailedForGood;
  const bool names_cause = failed && round_ && !round_->any_gone();
  rule_ = rule;
  verdict_ = {.outcome = outcome,
              .reason = Bounded(std::move(reason), kTextBytesMax),
              .failures = std::move(cause.failures),
              .first_causes = names_cause ? cause.ties : 0,
              .generation = generation_,
              .restart_count = history_.restart_count,
              .rule = RuleName(rule)};
  phase_ = Phase::kEnded;
  reason_ = verdict_.reason;
  record_.End(now_, reason_);
  ledger_.End(now_);
  farewell_end_ = now_ + kFarewell;
  tick_due_ = Instant::Infinite();
  round_.reset();
  AddNote(
      "verdict",
      {{"outcome", OutcomeName(outcome)}, {"reason", verdict_.reason}, {"rule", verdict_.rule}});
  for (auto& [order, node] : nodes_.nodes()) {
    node.group_rank.reset();
    node.progress.clear();
    node.cleaning = Generation();
    node.lease_end = Instant::Infinite();
    node.stop_bound = Instant::Infinite();
    Refresh(node);
    SendTo(node, verdict_);
  }
}

// The job can be forgotten when everybody who can be told was told and has closed its stream.
void Job::CheckFarewell() {
  if (forgotten_) return;
  if (now_ >= farewell_end_) {
    for (auto& [order, node] : nodes_.nodes()) {
      if (node.stream) CloseNodeStream(node, absl::OkStatus());
    }
  } else if (nodes_.stream_count() > 0 || !nodes_.nodes().empty()) {
    return;
  }
  forgotten_ = true;
  farewell_end_ = Instant::Infinite();
  for (auto& [order, node] : nodes_.nodes()) {
    node.grace_end = Instant::Infinite();
    Refresh(node);
  }
  effects_.push_back(Ended{.outcome = verdict_.outcome});
}

}  // namespace ddprun::rendezvous
