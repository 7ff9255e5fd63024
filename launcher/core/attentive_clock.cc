#include "launcher/core/attentive_clock.h"

#include <algorithm>

namespace ddprun::launcher {

Instant AttentiveClock::Read(Instant now, Instant asked) {
  // What a hold-up owes was given by the first look after it.
  const absl::Duration late = real_ < stands_until_ ? kHearing : kHeldUp;
  if (now > asked + late) {
    stall_ = now - asked;
    // Nothing that was due then is so before what came meanwhile could be read.
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
