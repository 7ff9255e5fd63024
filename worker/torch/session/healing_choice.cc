#include "worker/torch/session/healing_choice.h"

namespace ddprun::worker {
namespace {

// How many bytes of state a second are sent, decoded and restored while all ranks wait
// (bench/healing_bench.py measured 0.2e9 on two busy cores).
constexpr double kBytesPerSecond = 0.5e9;
// The cost of the extra connections beside a step.
constexpr absl::Duration kConnectTime = absl::Milliseconds(20);

}  // namespace

bool BesideTakesLess(int64_t bytes, absl::Duration step_time, uint32_t missing, uint32_t learners) {
  const absl::Duration before = absl::Seconds(static_cast<double>(bytes) / kBytesPerSecond);
  return before > kConnectTime + step_time * missing / learners;
}

}  // namespace ddprun::worker
