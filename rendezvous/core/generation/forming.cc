#include "rendezvous/core/generation/forming.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/check.h"

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
