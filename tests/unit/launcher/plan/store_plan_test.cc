#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

TEST(StorePlan, WorkerRankZeroHostsTheStoreOnRequest) {  // 52
  const auto plan = [](const char* value) {
    return PlanOf("train.py", {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", value}});
  };
  EXPECT_TRUE(PlanOf("train.py").agent_store);
  EXPECT_FALSE(plan("1").agent_store);
  for (const char* other : {"0", "", "true"}) EXPECT_TRUE(plan(other).agent_store) << other;
}

}  // namespace
}  // namespace ddprun::launcher
