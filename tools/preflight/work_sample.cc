#include "tools/preflight/work_sample.h"

#include <algorithm>
#include <cstdint>

#include "base/clock.h"
#include "base/rng.h"

namespace ddprun::launcher {
namespace {

constexpr int kSamples = 8;
constexpr int kSteps = 400'000;

}  // namespace

absl::Duration SampleWork() {
  absl::Duration least = absl::InfiniteDuration();
  volatile uint64_t sink = 0;  // so that the work is done
  for (int sample = 0; sample < kSamples; ++sample) {
    Rng rng(static_cast<uint64_t>(sample));
    const absl::Duration began = ThreadTime();
    uint64_t sum = 0;
    for (int i = 0; i < kSteps; ++i) sum += rng.Next();
    sink = sum;
    least = std::min(least, ThreadTime() - began);
  }
  static_cast<void>(sink);
  return least;
}

}  // namespace ddprun::launcher
