#include "worker/metrics/step_clock.h"

#include <algorithm>

namespace ddprun::worker {
namespace {

// The weight of a step in the expected time, after enough steps: about the last hundred count.
constexpr double kLeastWeight = 0.02;

}  // namespace

void StepClock::Step(Instant now) {
  const absl::Duration took = now - last_;
  last_ = now;
  ++steps_;
  ++interval_steps_;
  interval_ += took;
  elapsed_ += took;
  // A plain mean at first. The first step, with its start-up costs, is forgotten with the second.
  const auto counted = static_cast<double>(std::max<int64_t>(steps_ - 1, 1));
  smoothed_ += (took - smoothed_) * std::max(1 / counted, kLeastWeight);
}

void StepClock::TakeInterval() {
  interval_ = absl::ZeroDuration();
  interval_steps_ = 0;
}

std::optional<absl::Duration> StepClock::TimeFor(int64_t steps) const {
  if (steps_ == 0) return std::nullopt;
  return smoothed_ * steps;
}

}  // namespace ddprun::worker
