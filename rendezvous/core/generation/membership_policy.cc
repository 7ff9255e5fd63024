#include "rendezvous/core/generation/membership_policy.h"

#include <algorithm>

namespace ddprun::rendezvous {

FormingDecision DecideForming(const JobSpec& spec, const FormingInput& input) {
  using Action = FormingDecision::Action;
  if (input.now < input.began) return {.action = Action::kWait, .until = input.began};
  const Instant give_up = input.began + spec.join_timeout;
  if (input.present >= spec.nodes_max) return {.action = Action::kForm, .rule = Rule::kAllNodes};
  if (input.present < spec.nodes_min) {
    if (input.now >= give_up) return {.action = Action::kGiveUp, .rule = Rule::kJoinTimeout};
    return {.action = Action::kWait, .until = give_up};
  }
  if (input.cause != RoundCause::kFirst) return {.action = Action::kForm};
  const Instant last_call_end = std::min(input.min_reached + spec.last_call_timeout, give_up);
  if (input.now >= last_call_end) return {.action = Action::kForm, .rule = Rule::kLastCall};
  return {.action = Action::kWait, .until = last_call_end};
}

bool CanGrow(const JobSpec& spec, uint32_t members, bool any_succeeded) {
  return members < spec.nodes_max && !any_succeeded;
}

GrowthDecision DecideGrowth(const JobSpec& spec, const GrowthInput& input) {
  const GrowthDecision never{.close = false, .until = Instant::Infinite()};
  if (input.newcomers == 0 || !CanGrow(spec, input.members, input.any_succeeded)) return never;
  const bool fills_up = input.members + input.newcomers >= spec.nodes_max;
  const Instant last_call_end =
      fills_up ? input.now : input.newcomers_since + spec.last_call_timeout;
  const Instant end = std::max(last_call_end, input.not_before);
  if (input.now >= end) return {.close = true};
  return {.close = false, .until = end};
}

}  // namespace ddprun::rendezvous
