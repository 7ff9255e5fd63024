#include "ddprun/start_banner.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct EpochCase {
  int64_t processes;
  int64_t steps;
  const char* text;
};

class StepsPerEpochTest : public ::testing::TestWithParam<EpochCase> {};

TEST_P(StepsPerEpochTest, LeavesOutWhatFillsNoGlobalBatch) {
  const EpochCase& epoch = GetParam();
  EXPECT_EQ(StepsPerEpoch(29'500, GlobalBatch(4, 1, epoch.processes)), epoch.steps);
  EXPECT_THAT(
      StartBanner({.batch_size = 4, .dataset_samples = 29'500, .processes = epoch.processes}),
      HasSubstr(epoch.text));
}

INSTANTIATE_TEST_SUITE_P(Processes, StepsPerEpochTest,
                         ::testing::Values(EpochCase{1, 7375, "\n  steps per epoch: 7,375\n"},
                                           EpochCase{2, 3687, "\n  steps per epoch: 3,687\n"},
                                           EpochCase{4, 1843, "\n  steps per epoch: 1,843\n"},
                                           EpochCase{8, 921, "\n  steps per epoch: 921\n"}));

TEST(StartBannerTest, SaysWhatRuns) {
  const RunFacts facts = {.program = "char_gpt",
                          .precision = "bf16",
                          .batch_size = 4,
                          .gradient_accumulation_steps = 2,
                          .dataset_samples = 29'500,
                          .epochs = 3,
                          .parameters = 1'040'000,
                          .backend = "shm",
                          .devices = "2 × cpu",
                          .processes = 2,
                          .restart_count = 1};
  EXPECT_EQ(StartBanner(facts),
            "char_gpt\n"
            "  processes: 2\n"
            "  devices: 2 × cpu\n"
            "  backend: shm\n"
            "  precision: bf16\n"
            "  parameters: 1,040,000\n"
            "  samples: 29,500\n"
            "  global batch: 16 (4 a process × 2 × 2 accumulated)\n"
            "  steps per epoch: 1,843\n"
            "  epochs: 3\n"
            "  steps: 5,529\n"
            "  restarts: 1\n");
}

TEST(StartBannerTest, SaysWhereABatchStaysThatOptionsMakeLarger) {
  EXPECT_THAT(StartBanner({.batch_size = 4, .global_batch = 12, .processes = 2}),
              HasSubstr("\n  global batch: 12 (as before, on 2 processes, at most 4 in a pass)\n"));
  EXPECT_THAT(StartBanner({.batch_size = 4, .global_batch = 12, .processes = 1}),
              HasSubstr("\n  global batch: 12 (as before, on 1 process, at most 4 in a pass)\n"));
}

TEST(StartBannerTest, CountsALastStepThatHasWhatIsLeft) {
  const RunFacts facts = {
      .batch_size = 4, .dataset_samples = 243, .steps_per_epoch = 21, .epochs = 2, .processes = 3};
  EXPECT_THAT(StartBanner(facts), HasSubstr("\n  steps per epoch: 21\n  epochs: 2\n  steps: 42\n"));
}

TEST(StartBannerTest, LeavesOutWhatIsUnknown) {
  const std::string text = StartBanner({.backend = "gloo", .devices = "1 × cpu"});
  EXPECT_THAT(text, Not(HasSubstr("steps")));
  EXPECT_THAT(text, Not(HasSubstr("parameters")));
  EXPECT_THAT(text, Not(HasSubstr("restarts")));
}

}  // namespace
}  // namespace ddprun
