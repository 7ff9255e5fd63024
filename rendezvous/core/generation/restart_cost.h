#ifndef DDPRUN_RENDEZVOUS_CORE_GENERATION_RESTART_COST_H_
#define DDPRUN_RENDEZVOUS_CORE_GENERATION_RESTART_COST_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/core/time_spent.h"

namespace ddprun::rendezvous {

// The cost of a restart of the live generation: its start, and the training since the last
// checkpoint, which would have to be done again (R4). If workers mark no checkpoint, all their
// training counts, because nobody knows what they have saved. Pure.
class RestartCost {
 public:
  // A generation has its ranks.
  void Begin(Instant formed);
  // A worker of the generation is in a training step.
  void SawStep(Instant now);
  // A node reports how its workers spent the generation.
  void SawTime(Instant now, uint32_t group_rank, const NodeTime& time);

  // The cost of a restart that becomes necessary at `until`.
  absl::Duration Estimate(Instant until) const;

  // The first broken invariant; "" = all hold.
  std::string BrokenInvariant(Instant now) const;

 private:
  Instant formed_;
  std::optional<Instant> trained_;                  // the first step was seen; >= formed_
  std::optional<Instant> saved_;                    // a checkpoint was over; >= formed_
  std::map<uint32_t, absl::Duration> checkpoints_;  // by group rank: spent on them so far
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_CORE_GENERATION_RESTART_COST_H_
