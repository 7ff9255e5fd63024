#include "worker/torch/session/checkpointed_parts.h"

#include <gtest/gtest.h>
#include <torch/types.h>

namespace ddprun::worker {
namespace {

CheckpointedState::Tensors StateAfter(int64_t step) {
  return {{"step", torch::full({}, step, torch::kLong)},
          {"0.q", torch::full({3, 1}, 2.0)},
          {"0.error", torch::full({4, 3}, 0.5)}};
}

TEST(PowerSgdOfAll, GivesWhatAllHaveAndTakesItWithoutErrors) {
  PowerSgd leader;
  ASSERT_TRUE(leader.RestoreState(StateAfter(1003)).ok());
  const CheckpointedState::Tensors sent = PowerSgdOfAll(leader).SaveState();
  EXPECT_EQ(sent.size(), 2U);
  // A hook that was a step behind had other errors.
  PowerSgd behind;
  ASSERT_TRUE(behind.RestoreState(StateAfter(1002)).ok());
  ASSERT_TRUE(PowerSgdOfAll(behind).RestoreState(sent).ok());
  const CheckpointedState::Tensors now = behind.SaveState();
  EXPECT_EQ(now.size(), 2U);
  EXPECT_EQ(now.at("step").item<int64_t>(), 1003);
  EXPECT_TRUE(now.at("0.q").equal(torch::full({3, 1}, 2.0)));
  EXPECT_EQ(leader.SaveState().size(), 3U) << "its own errors stay";
}

TEST(KeepPowerSgd, IsNotChangedByTheNextStep) {
  PowerSgd hook;
  ASSERT_TRUE(hook.RestoreState(StateAfter(1003)).ok());
  const CheckpointedState::Tensors kept = KeepPowerSgd(hook);
  hook.SaveState().at("0.q").zero_();  // as a step's orthogonalization, in place
  EXPECT_TRUE(kept.at("0.q").equal(torch::full({3, 1}, 2.0)));
  ASSERT_TRUE(hook.RestoreState(kept).ok());
  EXPECT_TRUE(hook.SaveState().at("0.q").equal(torch::full({3, 1}, 2.0)));
  EXPECT_EQ(hook.SaveState().size(), 3U);
}

}  // namespace
}  // namespace ddprun::worker
