#include "rendezvous/core/generation/restart_cost.h"

#include <algorithm>

namespace ddprun::rendezvous {

void RestartCost::Begin(Instant formed) {
  *this = RestartCost();
  formed_ = formed;
}

void RestartCost::SawStep(Instant now) {
  if (!trained_) trained_ = now;
}

void RestartCost::SawTime(Instant now, uint32_t group_rank, const NodeTime& time) {
  const absl::Duration spent = time.spent[TimeCause::kCheckpoint];
  absl::Duration& known = checkpoints_[group_rank];
  if (spent <= known) return;
  known = spent;
  saved_ = now;
}

// Example: formed at 0 s, first step at 4 s, a checkpoint over at 60 s, silence from 75 s on: a
// restart costs the start, 4 s, and the 15 s of training since the checkpoint.
absl::Duration RestartCost::Estimate(Instant until) const {
  const Instant trained = trained_.value_or(formed_);
  const Instant from = saved_.value_or(trained);
  return trained - formed_ + std::max(until - from, absl::ZeroDuration());
}

std::string RestartCost::BrokenInvariant(Instant now) const {
  if (formed_ > now) return "a generation that begins in the future";
  if (trained_ && (*trained_ < formed_ || *trained_ > now)) return "a step outside its generation";
  if (saved_ && (*saved_ < formed_ || *saved_ > now)) return "a checkpoint outside its generation";
  return "";
}

}  // namespace ddprun::rendezvous
