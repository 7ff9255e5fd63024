#include "rendezvous/web/core/step_rate.h"

#include <algorithm>

namespace ddprun::rendezvous {
namespace {

// A step is overdue after this time, or after this many times its usual length.
constexpr absl::Duration kOverdueLeast = absl::Seconds(5);
constexpr int kOverdueSteps = 3;

}  // namespace

std::optional<double> StepRate::Take(const StepReading& reading) {
  const bool goes_on = reading.generation == generation_ && step_.has_value() &&
                       reading.step.has_value() && *reading.step >= *step_;
  if (!goes_on) {
    generation_ = reading.generation;
    step_ = reading.step;
    moved_ = reading.at;
    rate_.reset();
    return rate_;
  }
  const absl::Duration since = reading.at - moved_;
  if (*reading.step > *step_ && since > absl::ZeroDuration()) {
    rate_ = static_cast<double>(*reading.step - *step_) / absl::ToDoubleSeconds(since);
    step_ = reading.step;
    moved_ = reading.at;
  } else if (since > std::max(kOverdueLeast, kOverdueSteps * reading.step_time)) {
    rate_ = 0;
  }
  return rate_;
}

}  // namespace ddprun::rendezvous
