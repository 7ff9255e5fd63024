#ifndef DDPRUN_RENDEZVOUS_CORE_MEMBERSHIP_POLICY_H_
#define DDPRUN_RENDEZVOUS_CORE_MEMBERSHIP_POLICY_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/types.h"

// When a generation begins, ends for growth, and what its end costs: pure functions that return a
// decision and, where people see it, the reason (R3, R7, R8).
namespace ddprun::rendezvous {

// Why there is no generation at the moment.
enum class RoundCause {
  kFirst,   // there was none yet
  kFault,   // a worker failed, or a node was lost or left
  kGrowth,  // it was ended to take newcomers in
};

struct FormingInput {
  RoundCause cause = RoundCause::kFirst;
  uint32_t present = 0;  // nodes that could start now
  Instant now;
  Instant began;        // when this round began to wait
  Instant min_reached;  // since when present >= nodes_min; infinite = it is not
};

struct FormingDecision {
  enum class Action { kWait, kForm, kGiveUp };
  Action action = Action::kWait;
  Instant until;  // kWait: when to decide again, if nothing happens before
};

// Whether the next generation starts now (R3): at once with all nodes, and after a fault with the
// least number; only the first formation above the minimum waits for the last call.
FormingDecision DecideForming(const JobSpec& spec, const FormingInput& input);

struct GrowthInput {
  uint32_t members = 0;    // nodes of the running generation
  uint32_t newcomers = 0;  // nodes that could start now
  bool any_succeeded = false;
  Instant now;
  Instant newcomers_since;  // since when there are newcomers; infinite = there are none
};

struct GrowthDecision {
  bool close = false;  // end the generation now
  Instant until;       // otherwise when to decide again; infinite = newcomers are spares
};

// Whether the running generation ends so that newcomers can take part (R3, R8).
GrowthDecision DecideGrowth(const JobSpec& spec, const GrowthInput& input);

// What ended a generation, as decided when all its members have answered (R7).
enum class Blame { kWorker, kMembership, kGrowth };

std::string BlameName(Blame blame);

struct Budget {
  uint32_t restart_count = 0;
  uint32_t membership_changes = 0;
};

struct BlameInput {
  bool any_gone = false;  // a node was lost or left in this round
  bool for_growth = false;
  absl::Duration uptime;  // from the assignment to the first trigger
};

struct BlameDecision {
  Blame blame = Blame::kWorker;
  Budget budget;       // afterwards
  bool spent = false;  // there was nothing left to pay with
};

// Who pays for the end of a generation. A loss makes failures of the same round consequences; stops
// for growth cost nothing, nor do failures while they last.
BlameDecision DecideBlame(const JobSpec& spec, const Budget& budget, const BlameInput& input);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_MEMBERSHIP_POLICY_H_
