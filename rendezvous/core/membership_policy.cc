#include "rendezvous/core/membership_policy.h"

#include <algorithm>

#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {

FormingDecision DecideForming(const JobSpec& spec, const FormingInput& input) {
  using Action = FormingDecision::Action;
  const Instant give_up = input.began + spec.join_timeout;
  if (input.present >= spec.nodes_max) return {.action = Action::kForm};
  if (input.present < spec.nodes_min) {
    if (input.now >= give_up) return {.action = Action::kGiveUp};
    return {.action = Action::kWait, .until = give_up};
  }
  if (input.cause != RoundCause::kFirst) return {.action = Action::kForm};
  const Instant last_call_end = std::min(input.min_reached + spec.last_call_timeout, give_up);
  if (input.now >= last_call_end) return {.action = Action::kForm};
  return {.action = Action::kWait, .until = last_call_end};
}

GrowthDecision DecideGrowth(const JobSpec& spec, const GrowthInput& input) {
  const GrowthDecision never{.close = false, .until = Instant::Infinite()};
  if (input.newcomers == 0 || input.any_succeeded || input.members >= spec.nodes_max) return never;
  if (input.members + input.newcomers >= spec.nodes_max) return {.close = true};
  const Instant last_call_end = input.newcomers_since + spec.last_call_timeout;
  if (input.now >= last_call_end) return {.close = true};
  return {.close = false, .until = last_call_end};
}

std::string BlameName(Blame blame) {
  switch (blame) {
    case Blame::kWorker:
      return "worker";
    case Blame::kMembership:
      return "membership";
    case Blame::kGrowth:
      return "growth";
  }
  return "unknown";
}

BlameDecision DecideBlame(const JobSpec& spec, const Budget& budget, const BlameInput& input) {
  BlameDecision decision{.budget = budget};
  if (input.uptime >= kProgressUptime) decision.budget.membership_changes = 0;
  if (input.any_gone) {
    decision.blame = Blame::kMembership;
    decision.spent = decision.budget.membership_changes >= kMembershipChangesMax;
    if (!decision.spent) ++decision.budget.membership_changes;
  } else if (input.for_growth) {
    decision.blame = Blame::kGrowth;
  } else {
    decision.blame = Blame::kWorker;
    decision.spent = decision.budget.restart_count >= spec.max_restarts;
    if (!decision.spent) ++decision.budget.restart_count;
  }
  return decision;
}

}  // namespace ddprun::rendezvous
