// --leftovers, --memory_checkpoints, --in_process_restart.
#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using Mode = LeftoverPlan::Mode;

TEST(LeftoverOptions, Values) {
  EXPECT_EQ(PlanOf("train.py").leftovers.mode, Mode::kWait);
  EXPECT_EQ(PlanOf("--leftovers kill train.py").leftovers.mode, Mode::kKill);
  EXPECT_EQ(PlanOf("--leftovers spare train.py").leftovers.mode, Mode::kSpare);
  const LeftoverPlan wait = PlanOf("train.py", {{"PET_LEFTOVERS", "wait=2m"}}).leftovers;
  EXPECT_EQ(wait.mode, Mode::kWait);
  EXPECT_EQ(wait.after_success, absl::Minutes(2));
}

TEST(LeftoverOptions, WhatIsNoneIsRefused) {
  ExpectRefused({"--leftovers maybe train.py", 2, "is none of kill, wait, wait=SECONDS and spare"});
  ExpectRefused({"--leftovers wait=soon train.py", 2, "is not a number of seconds"});
  ExpectRefused({"--leftovers wait=-1 train.py", 1, "--leftovers '-1'"});
}

TEST(MemoryCheckpointOptions, Values) {
  const MemoryCheckpointPlan by_default = PlanOf("train.py").memory_checkpoints;
  EXPECT_EQ(by_default.bytes, std::nullopt);
  EXPECT_EQ(by_default.percent, std::nullopt);
  EXPECT_EQ(PlanOf("--memory_checkpoints 8GiB train.py").memory_checkpoints.bytes,
            uint64_t{8} << 30);
  EXPECT_EQ(PlanOf("train.py", {{"PET_MEMORY_CHECKPOINTS", "10%"}}).memory_checkpoints.percent, 10);
  EXPECT_EQ(PlanOf("--memory_checkpoints 0 train.py").memory_checkpoints.bytes, uint64_t{0});
  ExpectRefused({"--memory_checkpoints 8GB train.py", 1,
                 "--memory_checkpoints '8GB': is no size (8GiB, 512MiB) and no percentage (10%)"});
}

TEST(InProcessRestartOption, IsOffByDefault) {
  EXPECT_FALSE(PlanOf("train.py").in_process_restart);
  EXPECT_TRUE(PlanOf("--in_process_restart train.py").in_process_restart);
  EXPECT_TRUE(PlanOf("--in-process-restart train.py").in_process_restart);
  EXPECT_TRUE(PlanOf("train.py", {{"PET_IN_PROCESS_RESTART", "1"}}).in_process_restart);
}

}  // namespace
}  // namespace ddprun::launcher
