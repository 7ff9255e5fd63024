#include "worker/torch/session/healing_step.h"

#include <gtest/gtest.h>

namespace ddprun::worker {
namespace {

constexpr int64_t kMegabyte = 1'000'000;

// At half a GB a second, 256 MB hold all workers up for 512 ms. Beside a step, the connection takes
// 20 ms, and 1 missing worker costs 2 learners half a step: 510 ms with steps of 980 ms, 515 ms
// with 990 ms.
TEST(HealingChoiceTest, ALargeStateOfShortStepsIsSentBesideOne) {
  EXPECT_TRUE(BesideTakesLess(256 * kMegabyte, absl::Milliseconds(980), 1, 2));
  EXPECT_FALSE(BesideTakesLess(256 * kMegabyte, absl::Milliseconds(990), 1, 2));
}

TEST(HealingChoiceTest, TheMoreAreMissingTheMoreTheOthersCompute) {
  EXPECT_TRUE(BesideTakesLess(256 * kMegabyte, absl::Seconds(2), 1, 7));
  EXPECT_FALSE(BesideTakesLess(256 * kMegabyte, absl::Seconds(2), 4, 4));
}

TEST(HealingChoiceTest, ASmallStateIsSentAtOnce) {
  EXPECT_FALSE(BesideTakesLess(10 * kMegabyte, absl::ZeroDuration(), 1, 7));
  EXPECT_TRUE(BesideTakesLess(11 * kMegabyte, absl::ZeroDuration(), 1, 7));
}

}  // namespace
}  // namespace ddprun::worker
