#ifndef DDPRUN_TESTS_SUPPORT_SLOW_H_
#define DDPRUN_TESTS_SUPPORT_SLOW_H_

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/time/time.h"

namespace ddprun {

// Bounds on time are multiplied by this, as by SLOW of bed.py: tests run side by side, on machines
// with other work, and under sanitizers. The bounds only distinguish "at once" from "when a
// time-out is over".
inline double Slow() {
  static const double kSlow = [] {
    const char* const slowness = std::getenv("DDPRUN_TEST_SLOWNESS");
    double value = 1;
    return slowness != nullptr && absl::SimpleAtod(slowness, &value) ? 4 * value : 4.0;
  }();
  return kSlow;
}

// Returns the shortest of up to five times that `measure()` takes, or the first one below `enough`.
// For bounds that can't be multiplied, because the mistake that they exclude takes hardly longer:
// other work delays one run now and then, a mistake delays each.
template <typename Measure>
absl::Duration Shortest(absl::Duration enough, const Measure& measure) {
  absl::Duration shortest = absl::InfiniteDuration();
  for (int i = 0; i < 5 && shortest >= enough; ++i) shortest = std::min(shortest, measure());
  return shortest;
}

}  // namespace ddprun

#endif  // DDPRUN_TESTS_SUPPORT_SLOW_H_
