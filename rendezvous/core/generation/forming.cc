#include "rendezvous/core/generation/forming.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

// When the next generation forms (R3). DecideForming() has the rules; Forming keeps the instants
// that the rules need.
//
// since_ has two meanings: before it, the job pauses before a restart; from it on, the job waits
// for nodes, and join_timeout counts, so a pause never shortens the wait.
//
// enough_since_ is the instant at which the job last went from too few nodes to nodes_min. The last
// call of a first formation counts from there, and not from since_: schedulers may start nodes
// minutes apart, so a last call from since_ would often be over when the second node joins, and
// each later node would then end a running generation for growth.
//
// Example: nodes_min 2, nodes_max 4, last call 30 s, join_timeout 600 s.
//
//   t     event             candidates  enough_since_  decision
//   0 s   BeginFirst                 0  infinite       wait; give up at 600 s
//   10 s  two nodes join             2  10 s           wait until 40 s
//   16 s  one is lost                1  infinite       wait; give up at 600 s
//   17 s  another one joins          2  17 s           wait until 47 s, not 40 s
//   47 s  the timer fires            2  17 s           form, rule last_call
//
// With four candidates the generation forms at once. So it does with two when it isn't the first
// one: the workers are stopped, and each second of waiting would be lost. Such a generation carries
// the rule that ended the last one (rule_).

namespace ddprun::rendezvous {

void Forming::BeginFirst(Instant now) {
  DDPRUN_CHECK(first(), "the first generation comes once");
  since_ = now;
}

void Forming::BeginNext(Instant now, RoundCause cause, std::string why, Rule rule,
                        absl::Duration pause) {
  DDPRUN_CHECK(cause != RoundCause::kFirst, "there was a generation already");
  cause_ = cause;
  since_ = now + pause;
  enough_since_ = Instant::Infinite();
  why_ = std::move(why);
  rule_ = rule;
}

void Forming::RememberRanks(const std::vector<RoundMember>& members) {
  previous_ranks_.clear();
  for (const RoundMember& member : members) previous_ranks_.push_back(member.node_id);
}

void Forming::Watch(Instant now, bool enough) {
  if (!enough) enough_since_ = Instant::Infinite();
  if (enough && enough_since_.is_infinite()) enough_since_ = now;
}

// The record has the rest of a pause, and no other time: a recovered service counts join_timeout
// and the last call anew.
FormingRecord Forming::ToRecord(Instant now) const {
  return {.cause = cause_ == RoundCause::kFirst   ? FormingRecord::Cause::kFirst
                   : cause_ == RoundCause::kFault ? FormingRecord::Cause::kFault
                                                  : FormingRecord::Cause::kGrowth,
          .pause = std::max(since_ - now, absl::ZeroDuration()),
          .why = why_,
          .rule = first() ? "" : RuleName(rule_),
          .previous_ranks = previous_ranks_};
}

void Forming::Recover(Instant now, const FormingRecord& record) {
  DDPRUN_CHECK(first(), "a wait that has begun");
  previous_ranks_ = record.previous_ranks;
  const std::optional<Rule> rule = RuleOf(record.rule);
  if (record.cause == FormingRecord::Cause::kFirst || !rule) return BeginFirst(now);
  const bool fault = record.cause == FormingRecord::Cause::kFault;
  BeginNext(now, fault ? RoundCause::kFault : RoundCause::kGrowth, record.why, *rule, record.pause);
}

FormingDecision Forming::Decide(const JobSpec& spec, uint32_t present, Instant now) const {
  FormingDecision decision = DecideForming(spec, {.cause = cause_,
                                                  .present = present,
                                                  .now = now,
                                                  .began = since_,
                                                  .min_reached = enough_since_});
  DDPRUN_CHECK(decision.action != FormingDecision::Action::kForm || present >= spec.nodes_min,
               "a generation of too few nodes");
  if (!first() && decision.action != FormingDecision::Action::kGiveUp) decision.rule = rule_;
  return decision;
}

std::string Forming::BrokenInvariant(Instant now) const {
  if (first() && pausing(now)) return "a pause before the first generation";
  if (first() && !previous_ranks_.empty()) return "ranks before the first generation";
  if (!enough_since_.is_infinite() && enough_since_ > now) return "enough nodes in the future";
  return "";
}

}  // namespace ddprun::rendezvous
