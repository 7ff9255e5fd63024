#include "launcher/core/attentive_clock.h"

#include <algorithm>

namespace ddprun::launcher {

Instant AttentiveClock::Read(Instant now, Instant asked) {
  // While the clock stands still after a hold-up, calls may be late by the rest of that.
  const absl::Duration late = real_ < stands_until_ ? kHearing : kHeldUp;
  if (now > asked + late) {
    stall_ = now - asked;
    // Just before the time that was due, so that messages that came meanwhile are read first.
    time_ = std::max(time_, asked - behind_ - absl::Nanoseconds(1));
    stands_until_ = now + kHearing;
    behind_ = stands_until_ - time_;
  }
  real_ = now;
  time_ = At(now);
  return time_;
}

Instant AttentiveClock::At(Instant now) const { return std::max(time_, now - behind_); }

Instant AttentiveClock::Wake(Instant bound) const {
  if (bound.is_infinite()) return bound;
  return std::min(bound + behind_, real_ + kTick);
}

}  // namespace ddprun::launcher
