#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_MEMBERSHIP_POLICY_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_MEMBERSHIP_POLICY_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/job_spec.h"
#include "rendezvous/core/verdict.h"

// When a generation begins and when it ends for growth: pure functions (R3, R8).
namespace ddprun::rendezvous {

// Why there is no generation at the moment.
enum class RoundCause {
  kFirst,   // there has been none
  kFault,   // a worker failed, or a node was lost or left
  kGrowth,  // it was ended to take newcomers in
};

struct FormingInput {
  RoundCause cause = RoundCause::kFirst;
  uint32_t present = 0;  // nodes that could start now
  Instant now;
  Instant began;        // when the wait begins; in the future: a pause before a restart
  Instant min_reached;  // since when present >= nodes_min; infinite: present < nodes_min
};

struct FormingDecision {
  enum class Action { kWait, kForm, kGiveUp };
  Action action = Action::kWait;
  Instant until;                // kWait: when to decide again, at the latest
  Rule rule = Rule::kAllNodes;  // set for a first formation, and for kGiveUp
};

// Whether the next generation starts now (R3): at once with all nodes, and after a fault with the
// least number; only the first formation above the minimum waits for the last call. Nothing starts
// in the pause before a restart (R7).
FormingDecision DecideForming(const JobSpec& spec, const FormingInput& input);

// Whether a running generation may end for newcomers at all (R8).
bool CanGrow(const JobSpec& spec, uint32_t members, bool any_succeeded);

struct GrowthInput {
  uint32_t members = 0;    // nodes of the running generation
  uint32_t newcomers = 0;  // nodes that could start now
  bool any_succeeded = false;
  Instant now;
  Instant newcomers_since;  // since when there are newcomers; infinite = none
  Instant not_before;       // the generation doesn't end for newcomers earlier
};

struct GrowthDecision {
  bool close = false;  // end the generation now
  Instant until;       // when to decide again; infinite = newcomers are spares
};

// Whether the running generation ends so that newcomers can take part (R3, R8).
GrowthDecision DecideGrowth(const JobSpec& spec, const GrowthInput& input);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_MEMBERSHIP_POLICY_H_
