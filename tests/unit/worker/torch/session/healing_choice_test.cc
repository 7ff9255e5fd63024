#include "worker/torch/session/healing_choice.h"

#include <gtest/gtest.h>

namespace ddprun::worker {
namespace {

constexpr int64_t kMegabyte = 1'000'000;

// Half a GB a second: 256 MB take 512 ms, of which 20 ms are for the connection.
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
