// Programs that switch something of their modules while they train (switched_programs.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/worker/programs_testing.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// Rank 1 may be killed while the critic needs no gradients on rank 0.
TEST_F(ProgramsTest, ACriticThatNeedsNoGradientsMeanwhile) {
  KillTenTimes("frozen_critic", /*saves=*/false);
}

TEST_F(ProgramsTest, AModuleThatLearnsFromEarlierBatchesOfAStepOnly) {
  KillTenTimes("turns", /*saves=*/true, {"--gradient_accumulation_steps", "2"});
  for (const char* module : {"one", "other"}) EXPECT_EQ(Seen(0)[module], Seen(1)[module]);
}

TEST_F(ProgramsTest, ACriticThatLearnsTwiceAStep) {
  for (const char* precision : {"no", "fp16"}) {
    KillTenTimes("critic_twice", /*saves=*/false, {"--mixed_precision", precision});
  }
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

TEST_F(ProgramsTest, AnEpochsLastStepWithOneSample) {
  what_ = "norm_of_one";
  const auto seen = Undisturbed({});
  EXPECT_EQ(seen[0].at("steps"), seen[1].at("steps"));
}

// As by `srun -n 4 programs_probe`. Twin: one task.
TEST_F(ProgramsTest, SeveralTasksWithoutDdprun) {
  const std::vector<std::string> command = {InBuildTree("bin/programs_probe"), "slope",
                                            directory_.File("seen")};
  int run = 0;
  const auto output_with = [&](const std::map<std::string, std::string>& variables) {
    Process process(command, variables, directory_.File("alone" + std::to_string(run++)));
    EXPECT_EQ(process.Wait(), 0) << process.Output();
    return process.Output();
  };
  const std::string text = " is 4, and this process trains alone: ";
  EXPECT_THAT(output_with({{"SLURM_STEP_NUM_TASKS", "4"}}),
              HasSubstr("SLURM_STEP_NUM_TASKS" + text + "srun"));
  EXPECT_THAT(output_with({{"PMI_SIZE", "4"}, {"PMI_RANK", "0"}}), HasSubstr("PMI_SIZE" + text));
  EXPECT_THAT(output_with({{"PMI_SIZE", "4"}, {"PMI_RANK", "3"}}), Not(HasSubstr("trains alone")));
  EXPECT_THAT(output_with({{"SLURM_STEP_NUM_TASKS", "1"}}), Not(HasSubstr("trains alone")));
}

// A second one would wait for the keys that the first one has used.
TEST_F(ProgramsTest, ASecondContext) {
  ExpectRefused("second_context", "this process has made a Context already");
}

// A new worker does the first fold alone, and connects to the others by the same Context then.
TEST_F(ProgramsTest, AContextThatAProgramKeepsForAllFolds) {
  KillTenTimes("context_for_all_folds", /*saves=*/true);
  EXPECT_EQ(Seen(1)["world"], "2");
}

// The survivor would end, because its child's exit() said that it had left.
TEST_F(ProgramsTest, AChildThatCallsExit) { KillTenTimes("forks", /*saves=*/true); }

TEST_F(ProgramsTest, MetricsThatAProgramKeeps) {
  KillTenTimes("kept_metrics", /*saves=*/true);
  EXPECT_EQ(Seen(0)["is_kept"], "1");
}

}  // namespace
}  // namespace ddprun::testing
