// Programs that switch something of their modules while they train (switched_programs.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/worker/programs_testing.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

// Rank 1 may be killed while the critic needs no gradients on rank 0.
TEST_F(ProgramsTest, ACriticThatNeedsNoGradientsMeanwhile) {
  KillTenTimes("frozen_critic", /*saves=*/false);
}

TEST_F(ProgramsTest, AModuleThatLearnsFromEarlierBatchesOfAStepOnly) {
  KillTenTimes("turns", /*saves=*/true, {"--gradient_accumulation_steps", "2"});
  for (const char* module : {"one", "other"}) EXPECT_EQ(Seen(0)[module], Seen(1)[module]);
}

TEST_F(ProgramsTest, AParameterThatIsTrainedFromALaterStepOn) {
  for (const char* stage : {"0", "2"}) {
    ExpectRefused("thaws", "parameter '0.weight' needed no gradient at Prepare()",
                  {"--zero_stage", stage});
    AgainInANewGeneration();
  }
}

TEST_F(ProgramsTest, AParameterThatIsTrainedLaterAsPlanned) {
  KillTenTimes("thaws_as_planned", /*saves=*/true, {"--find_unused_parameters"});
  EXPECT_EQ(Seen(0)["thawed"], "1");
  EXPECT_EQ(Seen(0)["digest"], Seen(1)["digest"]);
}

TEST_F(ProgramsTest, AParameterThatIsTrainedLaterAsPlannedWithShares) {
  KillTenTimes("thaws_as_planned", /*saves=*/true,
               {"--find_unused_parameters", "--zero_stage", "2"});
  EXPECT_EQ(Seen(0)["thawed"], "1");
}

TEST_F(ProgramsTest, AGeneratorThatLearnsFirst) {
  KillTenTimes("generator_first", /*saves=*/false);
}

TEST_F(ProgramsTest, ALossOfASlope) { KillTenTimes("slope", /*saves=*/false); }

// Rank 1 is killed in evaluations, too.
TEST_F(ProgramsTest, BatchNormThatKeepsItsStatistics) {
  KillTenTimes("frozen_norm", /*saves=*/false, {"--epochs", "4"});
  EXPECT_EQ(Seen(0)["training_in_evaluations"], "0");
  EXPECT_EQ(Seen(0)["trains0"] + Seen(0)["trains1"] + Seen(0)["trains2"], "100");
  EXPECT_EQ(Seen(0)["mean"], "0");
}

TEST_F(ProgramsTest, AnInputThatTheModelMayKeep) { KillTenTimes("moved", /*saves=*/false); }

TEST_F(ProgramsTest, AHeadThatNoRankUsesStaysAsItIs) {
  for (const char* stage : {"0", "1", "2"}) {
    what_ = "unused_head";
    const auto seen =
        Undisturbed({"--find_unused_parameters", "--zero_stage", stage, "--weight_decay", "0.5"});
    EXPECT_EQ(seen[0].at("moved"), "0") << stage;
    EXPECT_EQ(seen[1].at("moved"), "0") << stage;
  }
  KillTenTimes("unused_head", /*saves=*/true,
               {"--find_unused_parameters", "--weight_decay", "0.5"});
}

TEST_F(ProgramsTest, WeightsWithTheChannelsLast) {
  KillTenTimes("channels_last", /*saves=*/true, {"--ema_decay", "0.9"});
  EXPECT_EQ(Seen(0)["digest"], Seen(1)["digest"]);
}

TEST_F(ProgramsTest, ARankWithoutSamplesIsntInTheStatistics) {
  KillTenTimes("norm_of_the_rest", /*saves=*/true);
  EXPECT_EQ(Seen(0)["is_as_expected"], "1");
}

// It would wait for the keys that the first one has used.
TEST_F(ProgramsTest, ASecondContext) {
  ExpectRefused("second_context", "this process has made a Context already");
}

// The survivor would end, because its child's exit() said that it had left.
TEST_F(ProgramsTest, AChildThatCallsExit) { KillTenTimes("forks", /*saves=*/true); }

TEST_F(ProgramsTest, MetricsThatAProgramKeeps) {
  KillTenTimes("kept_metrics", /*saves=*/true);
  EXPECT_EQ(Seen(0)["is_kept"], "1");
}

}  // namespace
}  // namespace ddprun::testing
