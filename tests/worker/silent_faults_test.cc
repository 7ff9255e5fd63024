// What went wrong in a Session without a word.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/worker/session_testing.h"

namespace ddprun::testing {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

using SilentFaultsTest = SessionTest;

// With a zero_stage there is one from before the first step, too.
std::vector<int64_t> Saved(const char* stage, std::vector<int64_t> steps) {
  if (*stage != '0') steps.insert(steps.begin(), 0);
  return steps;
}

// With a zero_stage each rank writes a file of its own, and one rank's finding counts for all.
TEST_F(SilentFaultsTest, ACheckpointWithANanIsWithheldAndTrainingGoesOn) {
  for (const char* stage : {"0", "1", "2", "3"}) {
    std::filesystem::remove_all(directory_.File("checkpoints"));
    RunWell("odd", Saving({"--zero_stage", stage, "--steps", "12", "--data", "spare5"}));
    EXPECT_EQ(SavedSteps(), Saved(stage, {4}));
    // The shards of a withheld checkpoint don't stay either.
    const int64_t files = *stage == '0' ? 1 : 6;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory_.File("checkpoints")),
                            std::filesystem::directory_iterator()),
              files)
        << stage;
    for (const char* step : {"8", "12"}) {
      EXPECT_THAT(Output(0),
                  HasSubstr(std::string("warning: the checkpoint of step ") + step +
                            " isn't written: on rank 0 the parameter 'spare' has a NaN"));
    }
    EXPECT_THAT(Output(1), Not(HasSubstr("isn't written")));
    // Negative control: without it there are all, with a buffer and a parameter that are infinite
    // on purpose; and all go on from the step before it.
    RunWell("odd", Saving({"--zero_stage", stage, "--steps", "12"}));
    EXPECT_THAT(Output(0), HasSubstr("resumed at step 4"));
    EXPECT_EQ(SavedSteps(), Saved(stage, {4, 8, 12}));
    EXPECT_THAT(Output(0), Not(HasSubstr("isn't written")));
  }
}

// A checkpoint with a NaN used to be the newest one: each restart resumed from it, and failed.
TEST_F(SilentFaultsTest, ANanBehindAFiniteLossEndsOneRunAndNotTheNext) {
  const auto options = Saving({"--steps", "20", "--no_in_process_restart"});
  auto poisoned = options;
  poisoned.insert(poisoned.end(), {"--data", "weight7"});
  Run("odd", poisoned);
  EXPECT_EQ(exits_, std::vector<int>({1, 1}));
  EXPECT_THAT(Message(0), HasSubstr("the loss is nan"));
  EXPECT_THAT(SavedSteps(), ElementsAre(4));
  EXPECT_EQ(RunWell("odd", options).at("steps"), "20");
}

// Earlier versions have published such checkpoints.
TEST_F(SilentFaultsTest, ACheckpointWithANanIsPassedOverWhereThereIsAnother) {
  for (const char* stage : {"0", "2"}) {
    std::filesystem::remove_all(directory_.File("checkpoints"));
    RunWell("odd", Saving({"--zero_stage", stage, "--steps", "4"}));
    // To this program a NaN in "spare" is nothing new.
    RunWell("odd", Saving({"--zero_stage", stage, "--steps", "8", "--data", "made5"}));
    EXPECT_EQ(SavedSteps(), Saved(stage, {4, 8}));
    RunWell("odd", Saving({"--zero_stage", stage, "--steps", "12"}));
    EXPECT_THAT(Output(0), HasSubstr("resumed at step 4"));
    EXPECT_THAT(Output(0), HasSubstr("-s0000000008.safetensors': the parameter 'spare' has a NaN; "
                                     "trying the one before it"));
    EXPECT_THAT(Output(1), Not(HasSubstr("trying")));
    // Negative control: to the program that has always had it, it is as good as any.
    std::filesystem::remove_all(directory_.File("checkpoints"));
    RunWell("odd", Saving({"--zero_stage", stage, "--steps", "4", "--data", "made"}));
    RunWell("odd", Saving({"--zero_stage", stage, "--steps", "8", "--data", "made"}));
    EXPECT_THAT(Output(0), HasSubstr("resumed at step 4"));
    EXPECT_THAT(Output(0), Not(HasSubstr("warning")));
    // If there is no other checkpoint, this one is taken.
    RunWell("odd", Saving({"--zero_stage", stage, "--steps", "12"}));
    EXPECT_THAT(Output(0), HasSubstr("there is no better checkpoint in"));
    EXPECT_THAT(Output(0), HasSubstr("resumed at step 8"));
    EXPECT_EQ(SavedSteps(), Saved(stage, {4, 8, 12}));
  }
}

// The directory of a job that lives is another job's end, at once, and nothing in it changes.
TEST_F(SilentFaultsTest, ADirectoryOfCheckpointsHasOneJob) {
  const auto options = Saving({"--steps", "12"});
  TemporaryDirectory other;
  const auto agent =
      FakeAgent::Start({.socket_path = other.File("agent"), .world_size = 1, .run_id = "first"});
  auto variables = WorkerVariables(other.path(), 0, 1);
  variables["TORCHELASTIC_RUN_ID"] = "first";
  variables["SESSION_PROBE_FAULT"] = "9 after 19";
  std::vector<std::string> command = {InBuildTree("bin/session_probe"), "fault",
                                      other.File("seen")};
  command.insert(command.end(), options.begin(), options.end());
  Process first(command, variables, other.File("output"));
  ASSERT_TRUE(first.AwaitStop()) << first.Output();
  // The checkpoint of step 8 may still be under way.
  const std::vector<int64_t> before = SavedSteps();
  EXPECT_THAT(before, Contains(4));
  const std::string newest = "resumed at step " + std::to_string(before.back());
  for (const char* survives : {"--in_process_restart", "--no_in_process_restart"}) {
    Run("fault", Saving({"--steps", "12", survives}));
    EXPECT_EQ(exits_, std::vector<int>({1, 1})) << Output(0) << Output(1);
    for (const uint32_t rank : {0, 1}) {
      EXPECT_THAT(Message(rank),
                  StartsWith("FAILED_PRECONDITION: '" + directory_.File("checkpoints") +
                             "' has the checkpoints of another job: run first, pid "));
      EXPECT_THAT(Message(rank), HasSubstr("another --output_dir"));
    }
  }
  EXPECT_EQ(SavedSteps(), before);
  // Reading needs no lock.
  Run("fault", {"--resume_from", directory_.File("checkpoints"), "--steps", "9", "--lr_schedule",
                "constant"});
  EXPECT_EQ(exits_, std::vector<int>({0, 0})) << Output(0) << Output(1);
  EXPECT_THAT(Output(0), HasSubstr(newest));
  // The lock ends with the process, however that ends.
  first.Kill(SIGKILL);
  EXPECT_EQ(first.Wait(), -SIGKILL);
  Run("fault", options);
  EXPECT_EQ(exits_, std::vector<int>({0, 0})) << Output(0) << Output(1);
  EXPECT_THAT(Output(0), HasSubstr(newest));
  EXPECT_THAT(SavedSteps(), ElementsAre(4, 8, 12));
  EXPECT_FALSE(std::filesystem::exists(directory_.File("checkpoints/.writer")));
}

// The run used to keep the scale of the fp32 run's scaler, which was off, for thousands of steps:
// 1.
TEST_F(SilentFaultsTest, AnFp32RunThatGoesOnInFp16BeginsWithTheScaleOfANewOne) {
  RunWell("average", Saving({"--steps", "4"}));
  const auto half = RunWell("average", Saving({"--steps", "8", "--mixed_precision", "fp16"}));
  EXPECT_THAT(Output(0), HasSubstr("resumed at step 4"));
  // With a scale of 65536 the first gradients overflow, and their steps are left out.
  EXPECT_GT(std::stoi(half.at("left_out")), 0);
}

TEST_F(SilentFaultsTest, AStepOfTheOptimizerBesideStepIsNamed) {
  for (const char* stage : {"0", "1", "2", "3"}) {
    for (const char* when : {"early_step", "late_step"}) {
      Run("train", {"--data", when, "--zero_stage", stage});
      EXPECT_EQ(exits_, std::vector<int>({1, 1})) << stage << when << Output(0);
      EXPECT_THAT(Message(0),
                  StartsWith("FAILED_PRECONDITION: after step 2 the program has stepped "
                             "session.optimizer() itself"));
    }
  }
}

// ZeRO stage 1 expects averaged gradients. A program that averages by hand may have other last
// bits.
TEST_F(SilentFaultsTest, GradientsThatNobodyAveragesAreAnError) {
  const auto run = [this](const std::vector<std::string>& words) {
    std::vector<std::string> command = {"checkpoint_probe",      "gloo", directory_.File("none"),
                                        directory_.File("seen"), "2",    "zero1"};
    command.insert(command.end(), words.begin(), words.end());
    RunProgram(command, 2);
  };
  run({"bare"});
  EXPECT_EQ(exits_, std::vector<int>({1, 1})) << Output(0) << Output(1);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_THAT(Message(rank), HasSubstr("nobody averages the gradients: that "
                                         "of 'tied' differs between the ranks"));
  }
  // Negative controls: with a reducer, and without.
  run({});
  EXPECT_EQ(exits_, std::vector<int>({0, 0})) << Output(0) << Output(1);
  run({"bare", "by_hand"});
  EXPECT_EQ(exits_, std::vector<int>({0, 0})) << Output(0) << Output(1);
}

TEST_F(SilentFaultsTest, ASeedThatChangesNothingIsNamed) {
  RunWell("train", Saving({"--steps", "4"}));
  RunWell("train", Saving({"--steps", "8", "--seed", "7"}));
  EXPECT_THAT(Output(0), HasSubstr("warning: --seed 7 doesn't change the order of the samples: the "
                                   "run that goes on began with --seed 1 and"));
  EXPECT_THAT(Output(1), Not(HasSubstr("--seed")));
  // Negative control: the same again.
  RunWell("train", Saving({"--steps", "12"}));
  EXPECT_THAT(Output(0), Not(HasSubstr("--seed")));
}

TEST_F(SilentFaultsTest, ChangedParameterGroupsAreNamed) {
  RunWell("groups", Saving({"--steps", "4"}));
  Run("groups", Saving({"--steps", "8", "--data", "other", "--no_in_process_restart"}));
  EXPECT_EQ(exits_, std::vector<int>({1, 1})) << Output(0) << Output(1);
  EXPECT_THAT(Message(0), HasSubstr("the optimizer's state '0.momentum_buffer' is [1, 1], and its "
                                    "parameter [1]: the parameter groups have other"));
}

TEST_F(SilentFaultsTest, AFileInPlaceOfTheDirectoryIsNamed) {
  std::ofstream(directory_.File("file")) << "1";
  Run("train", {"--output_dir", directory_.File("file")});
  EXPECT_EQ(exits_, std::vector<int>({1, 1})) << Output(0) << Output(1);
  for (const uint32_t rank : {0, 1}) {
    EXPECT_THAT(Message(rank), StartsWith("ALREADY_EXISTS: '" + directory_.File("file") +
                                          "/checkpoints' can't have checkpoints: "));
  }
}

// Once, and not on each rank that sees the same disk.
TEST_F(SilentFaultsTest, ADamagedCheckpointIsNamedOnce) {
  RunWell("train", Saving({"--steps", "8"}));
  for (const auto& entry : std::filesystem::directory_iterator(directory_.File("checkpoints"))) {
    if (entry.path().string().find("s0000000008") == std::string::npos) continue;
    std::filesystem::resize_file(entry.path(), entry.file_size() / 2);
  }
  RunWell("train", Saving({"--steps", "8"}));
  EXPECT_THAT(Output(0), HasSubstr("trying the one before it"));
  EXPECT_THAT(Output(0), HasSubstr("resumed at step 4"));
  EXPECT_THAT(Output(1), Not(HasSubstr("trying the one before it")));
}

TEST_F(SilentFaultsTest, AJournalThatCannotBeWrittenIsNamed) {
  const std::pair<const char*, const char*> mistakes[] = {
      {"/none/journal", "NOT_FOUND: open journal '/none/journal'"},
      {"/dev/full", "RESOURCE_EXHAUSTED: journal '/dev/full': write: No space left"}};
  for (const auto& [path, words] : mistakes) {
    Run("train", {"--journal", path, "--no_in_process_restart"});
    EXPECT_EQ(exits_, std::vector<int>({1, 1})) << Output(0) << Output(1);
    EXPECT_THAT(Message(0), StartsWith(words));
  }
}

TEST_F(SilentFaultsTest, ARunWithNothingToDoSaysSo) {
  RunWell("train", Saving({"--steps", "8"}));
  EXPECT_THAT(Output(0), Not(HasSubstr("nothing to do")));
  RunWell("train", Saving({"--steps", "6"}));
  EXPECT_THAT(Output(0), HasSubstr("nothing to do: the checkpoint is at step 8, --steps is 6"));
  RunWell("train", Saving({"--epochs", "1"}));
  EXPECT_THAT(Output(0), HasSubstr("nothing to do: the checkpoint has 1 epochs, --epochs is 1"));
}

}  // namespace
}  // namespace ddprun::testing
