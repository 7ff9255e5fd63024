#include "worker/torch/session/save_clock.h"

#include <algorithm>

namespace ddprun::worker {
namespace {

// A bound, because steps may become longer, as after a warm-up.
constexpr int64_t kMostSteps = 1000;

}  // namespace

void SaveClock::Restart(Instant now) {
  began_ = now;
  steps_ = 0;
  until_asked_ = 1;
}

bool SaveClock::StepIsDone() {
  if (interval_ <= absl::ZeroDuration()) return false;
  ++steps_;
  return --until_asked_ <= 0;
}

int64_t SaveClock::StepsToWait(Instant now) const {
  const absl::Duration passed = now - began_;
  if (passed >= interval_) return 0;
  const absl::Duration step = passed / std::max<int64_t>(steps_, 1);
  const absl::Duration half = (interval_ - passed) / 2;
  if (step <= half / kMostSteps) return kMostSteps;
  return std::max<int64_t>(1, static_cast<int64_t>(absl::FDivDuration(half, step)));
}

}  // namespace ddprun::worker
