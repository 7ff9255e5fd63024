#include "worker/torch/session/healing_choice.h"

namespace ddprun::worker {
namespace {

// What all stand still for when they wait: this much of it a second, with all that is done to it
// (bench/healing_bench.py: 0.2e9 on two busy cores).
constexpr double kBytesPerSecond = 0.5e9;
// Beside a step, for one more connection.
constexpr absl::Duration kConnectTime = absl::Milliseconds(20);

}  // namespace

bool BesideTakesLess(int64_t bytes, absl::Duration step_time, uint32_t missing, uint32_t learners) {
  const absl::Duration before = absl::Seconds(static_cast<double>(bytes) / kBytesPerSecond);
  return before > kConnectTime + step_time * missing / learners;
}

}  // namespace ddprun::worker
