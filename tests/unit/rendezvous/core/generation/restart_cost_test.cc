#include "rendezvous/core/generation/generation_record.h"

#include <gtest/gtest.h>

namespace ddprun::rendezvous::restart_cost_test {
namespace {

Instant At(int64_t seconds) { return Instant() + absl::Seconds(seconds); }

NodeTime Saved(int64_t seconds) {
  NodeTime time;
  time.spent[TimeCause::kCheckpoint] = absl::Seconds(seconds);
  return time;
}

TEST(RestartCost, IsTheStartAndWhatWasTrainedSinceTheLastCheckpoint) {
  RestartCost cost;
  cost.Begin(At(10));
  EXPECT_EQ(cost.Estimate(At(25)), absl::Seconds(15));
  cost.SawStep(At(14));
  cost.SawStep(At(20));  // the first counts
  EXPECT_EQ(cost.Estimate(At(70)), absl::Seconds(60));
  cost.SawTime(At(70), 0, Saved(1));
  EXPECT_EQ(cost.Estimate(At(85)), absl::Seconds(4 + 15));
  cost.SawTime(At(80), 0, Saved(1));  // no other checkpoint
  EXPECT_EQ(cost.Estimate(At(85)), absl::Seconds(4 + 15));
  cost.SawTime(At(82), 1, Saved(2));
  EXPECT_EQ(cost.Estimate(At(85)), absl::Seconds(4 + 3));
  EXPECT_EQ(cost.BrokenInvariant(At(85)), "");
  EXPECT_EQ(cost.Estimate(At(80)), absl::Seconds(4)) << "the silence began before the checkpoint";
}

TEST(RestartCost, AnotherGenerationHasSavedNothing) {
  RestartCost cost;
  cost.Begin(At(0));
  cost.SawStep(At(5));
  cost.SawTime(At(50), 0, Saved(1));
  cost.Begin(At(60));
  EXPECT_EQ(cost.Estimate(At(90)), absl::Seconds(30));
}

}  // namespace
}  // namespace ddprun::rendezvous::restart_cost_test
