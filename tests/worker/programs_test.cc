// Programs of more than one model, one Session or one number of state: each is killed ten times, at
// moments from its first step to its last one, and ends as one that nothing befell.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/programs_testing.h"

namespace ddprun::testing {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(ProgramsTest, KFold) { KillTenTimes("kfold", /*saves=*/true); }

// What nobody has saved the new worker trains again, while the other one waits.
TEST_F(ProgramsTest, KFoldWithoutCheckpoints) { KillTenTimes("kfold", /*saves=*/false); }

// All ranks are started anew, and skip the folds that are done.
TEST_F(ProgramsTest, KFoldResumes) {
  what_ = "kfold";
  const auto expected = Undisturbed(Folder(0, true));
  Process& first = Start(0, 2, 1, "60", Folder(1, true));
  Process& second = Start(1, 2, 1, "60", Folder(1, true));
  EXPECT_EQ(first.Wait(), -SIGKILL);
  EXPECT_EQ(second.Wait(), -SIGKILL);
  agent_->EndGeneration("all were killed");
  agent_->BeginGeneration(2, 2);
  Process& third = Start(0, 2, 2, "", Folder(1, true));
  Process& fourth = Start(1, 2, 2, "", Folder(1, true));
  EXPECT_EQ(third.Wait(), 0) << Output(0, 2);
  EXPECT_EQ(fourth.Wait(), 0) << Output(1, 2);
  EXPECT_THAT(Output(0, 2), HasSubstr("nothing to do"));
  for (const uint32_t rank : {0, 1}) ExpectAlike(Seen(rank), expected[rank], "resumed");
}

TEST_F(ProgramsTest, Gan) { KillTenTimes("gan", /*saves=*/false); }

TEST_F(ProgramsTest, GanWithAverageInFp16) {
  KillTenTimes("gan", /*saves=*/true, {"--ema_decay", "0.9", "--mixed_precision", "fp16"});
}

TEST_F(ProgramsTest, Figures) {
  const std::vector<std::string> options = {"--epochs", "3", "--evaluate_every", "5"};
  KillTenTimes("figures", /*saves=*/true, options);
  EXPECT_EQ(Seen(0)["evaluated"], "5,10,12") << "each five steps, and at the end";
  // The best is by the first evaluation's first figure, which falls with each step.
  std::vector<std::string> best = Folder(11, true);
  best.insert(best.end(), options.begin(), options.end());
  best.insert(best.end(), {"--resume_from", directory_.File("out0/checkpoints/best")});
  const auto seen = Undisturbed(best);
  EXPECT_EQ(seen[0].at("begun_at"), "5");
  EXPECT_EQ(seen[0].at("evaluated"), "5,10,12") << "the program's own state came with it";
}

TEST_F(ProgramsTest, ACheckpointThatCantBeWrittenEndsTraining) {
  what_ = "folder_lost";
  Process& one = Start(0, 2, 1, "", Folder(0, true));
  Process& other = Start(1, 2, 1, "", Folder(0, true));
  EXPECT_EQ(one.Wait(), 1);
  EXPECT_THAT(Output(0, 1), HasSubstr("out0/checkpoints': File exists"));
  KillAndWait(other);  // as the agent would
}

// Also if an evaluation, which asks for the best checkpoint, comes beside the write.
TEST_F(ProgramsTest, ACheckpointThatCantBeWrittenIsOnlySaid) {
  int run = 0;
  for (const char* kind : {"folder_lost", "folder_lost_judged"}) {
    what_ = kind;
    std::vector<std::string> options = Folder(run++, true);
    options.insert(options.end(), {"--checkpoint_errors", "warn"});
    EXPECT_EQ(Undisturbed(options)[0].at("steps"), "16") << kind;
    EXPECT_THAT(Output(0, 1), HasSubstr("training goes on without a checkpoint")) << kind;
  }
}

// A checkpoint has what torch in Python needs to take the next step: it ends where the next
// checkpoint does. Twin: without the optimizer's state it doesn't.
TEST_F(ProgramsTest, PythonGoesOnFromACheckpoint) {
  const std::string python = FindPython("py-launchers");
  if (python.empty()) GTEST_SKIP() << "no Python with safetensors; scripts/setup makes it";
  const auto ends_apart = [&](const std::string& kind, const std::string& how) {
    Process process({python, InSourceTree("tests/worker/go_on_in_python.py"),
                     directory_.File(kind + "/checkpoints"), how, kind},
                    {}, directory_.File("python"));
    return process.Wait() == 0 ? "" : process.Output();
  };
  for (const std::string kind : {"all_points", "lion"}) {
    what_ = kind;
    std::vector<std::string> options = {"--output_dir",       directory_.File(kind),
                                        "--checkpoint_every", "1",
                                        "--epochs",           "9",
                                        "--batch_size",       "32",
                                        "--keep_checkpoints", "9"};
    if (kind == "lion") {
      options.insert(options.end(), {"--learning_rate", "0.5", "--lr_schedule", "constant"});
    }
    Undisturbed(options);
    EXPECT_EQ(ends_apart(kind, "with_state"), "") << kind;
    EXPECT_THAT(ends_apart(kind, "without_state"), HasSubstr("apart")) << kind;
  }
}

TEST_F(ProgramsTest, EarlyStop) {
  KillTenTimes("early_stop", /*saves=*/true, {"--epochs", "30"});
  EXPECT_LT(Number(Seen(0)["steps"]), 30 * 8) << "it stopped by itself";
}

// The generation ends between a step and the next batch, when its copies and its checkpoint are
// still to come: without ZeRO (of step 3, which is saved), from a checkpoint, from copies.
TEST_F(ProgramsTest, AGenerationEndsBetweenAStepAndTheNextBatch) {
  what_ = "early_stop";
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--zero_stage", "0"},
        {"--zero_stage", "1"},
        {"--zero_stage", "3"},
        {"--zero_stage", "1", "--in_process_restart"},
        {"--zero_stage", "3", "--in_process_restart", "--replicate_every", "2"}}) {
    for (const char* tick : {"6", "8"}) {
      std::vector<std::string> options = {"--epochs", "3", "--checkpoint_every", "3"};
      options.insert(options.end(), more.begin(), more.end());
      KillAt(tick, /*waits=*/true, options);
      if (HasFailure()) return;
    }
  }
}

// The state of step 8 is from before the evaluation that follows this step: an evaluation that
// changes states of the program's own is made again when ranks go back to it.
TEST_F(ProgramsTest, AnEvaluationIsMadeAgainFromTheStateBeforeIt) {
  what_ = "early_stop";
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--zero_stage", "1"},
                                               {"--zero_stage", "1", "--in_process_restart"}}) {
    std::vector<std::string> options = {"--epochs", "3", "--checkpoint_every", "4"};
    options.insert(options.end(), more.begin(), more.end());
    KillAt("19", /*waits=*/false, options);  // in step 9
  }
}

// A job that begins with another run's checkpoint has one of its own before its first step.
TEST_F(ProgramsTest, SharesOfARunThatBeganWithAnothersCheckpoint) {
  what_ = "early_stop";
  const std::vector<std::string> common = {"--zero_stage", "1", "--checkpoint_every", "20"};
  std::vector<std::string> options = Folder(0, true);
  options.insert(options.end(), common.begin(), common.end());
  options.insert(options.end(), {"--steps", "4"});
  Undisturbed(options);
  options = common;
  options.insert(options.end(), {"--steps", "12", "--resume_from"});
  options.push_back(directory_.File("out0/checkpoints"));
  KillAt("7", /*waits=*/false, options);  // in step 8
}

TEST_F(ProgramsTest, EarlyStopWithShares) {
  KillTenTimes("early_stop", /*saves=*/true, {"--epochs", "30", "--zero_stage", "2"});
}

TEST_F(ProgramsTest, EarlyStopWithCopiesOfShares) {
  KillTenTimes("early_stop", /*saves=*/true,
               {"--epochs", "30", "--zero_stage", "3", "--in_process_restart"});
}

TEST_F(ProgramsTest, Lbfgs) { KillTenTimes("lbfgs", /*saves=*/true, {"--learning_rate", "0.5"}); }

TEST_F(ProgramsTest, OwnOptimizer) {
  KillTenTimes("lion", /*saves=*/true, {"--learning_rate", "0.01"});
}

// At the start, and not at the first checkpoint.
TEST_F(ProgramsTest, AnOptimizerThatSavesNothing) {
  ExpectRefused("forgetful", "ForgetfulLion can't be saved: its save() writes nothing");
}

TEST_F(ProgramsTest, AnOptimizerThatAsksForTheLossInItsStep) {
  ExpectRefused("lbfgs_as_another",
                "torch::optim::LBFGS asks for the loss during its step: in place of Backward() and "
                "Step() call session.Step([&](const Batch& batch) { return loss; })");
}

TEST_F(ProgramsTest, OptionsThatDontFitAnOptimizer) {
  ExpectRefused("lion", "shares out the state of AdamW and Sgd", {"--zero_stage", "1"});
  AgainInANewGeneration();
  ExpectRefused("lion", "a weight decay of the training or of a group has no effect on",
                {"--weight_decay", "0.1"});
}

TEST_F(ProgramsTest, OptionsThatDontFitSeveralModules) {
  ExpectRefused("gan", "--zero_stage 2 trains one module", {"--zero_stage", "2"});
}

TEST_F(ProgramsTest, AStopOfOneRankAlone) {
  ExpectRefused(
      "stops_alone",
      "rank 1 called StopTraining() after step 3, and rank 0 didn't: all ranks stop after "
      "the same step; let them decide together",
      {"--backend", "shm"});
  EXPECT_THAT(Output(1, 1), HasSubstr("rank 1 called StopTraining() after step 3"));
}

// The losses of both ranks are NaN when the tenth step's are looked at.
TEST_F(ProgramsTest, TheRankWhoseLossWasTheFirstThatIsNoNumber) {
  const std::string first = "the first was rank 1's, in step 6)";
  ExpectRefused("nan_alone", "(in step 10 of rank 0; " + first);
  EXPECT_THAT(Output(1, 1), HasSubstr("(in step 10 of rank 1; " + first));
}

TEST_F(ProgramsTest, AStateThatIsNotTheSameOnAllRanks) {
  what_ = "state_of_all_ranks";
  Undisturbed(Folder(1, true));
  EXPECT_THAT(Output(0, 1), Not(HasSubstr("differs")));
  what_ = "state_of_each_rank";
  Undisturbed(Folder(0, true));
  const std::string once = "state of the checkpoints differs between the ranks: 'hidden.value";
  const std::string output = Output(0, 1);
  const size_t place = output.find(once);
  ASSERT_NE(place, std::string::npos) << output;
  EXPECT_EQ(output.find(once, place + 1), std::string::npos) << output;
  EXPECT_THAT(output.substr(place), HasSubstr("'hidden.value Float [2, 3], bits "));
}

TEST_F(ProgramsTest, OtherDataThanTheCheckpoints) {
  what_ = "state_of_all_ranks";
  Undisturbed(Folder(0, true));
  ExpectRefused("fewer_points", "the checkpoint is of 64 samples, and Prepare() got 48",
                Folder(0, true));
  agent_->EndGeneration("it is done");
  agent_->BeginGeneration(1, 2);
  // The way that the text names.
  std::string checkpoint;
  for (const auto& one : std::filesystem::directory_iterator(directory_.File("out0/checkpoints"))) {
    if (one.path().extension() == ".safetensors") checkpoint = one.path();
  }
  std::vector<std::string> options = Folder(1, true);
  options.insert(options.end(), {"--resume_from", checkpoint, "--weights_prefix", "model."});
  EXPECT_EQ(Undisturbed(options)[0].at("steps"), "12");
  EXPECT_THAT(Output(0, 1), HasSubstr("begins at step 0 with the weights of"));
}

TEST_F(ProgramsTest, ACheckpointOfAnotherProgramSaysWhatDiffers) {
  std::vector<std::string> options = Folder(0, true);
  what_ = "counts";
  Undisturbed(options);
  what_ = "counts_nothing";
  options.insert(options.end(), {"--epochs", "3"});
  EXPECT_EQ(Undisturbed(options)[0].at("steps"), "24");
  EXPECT_THAT(Output(0, 1), HasSubstr("the checkpoint has the state 'count', which this program "
                                      "doesn't: training goes on without it"));
  EXPECT_THAT(Output(0, 1), Not(HasSubstr("'buckets'")));
  EXPECT_THAT(Output(1, 1), Not(HasSubstr("'count'"))) << "once is enough";
  ExpectRefused("counts_wide",
                "'model.bias' is Float [1] in the checkpoint, and Float [3] in this model",
                options);
}

// What was lost with the process before isn't in the mean.
TEST_F(ProgramsTest, AnEpochsLossSaysOfHowManySamplesItIs) {
  std::vector<std::string> options = Folder(0, true);
  options.insert(options.end(), {"--steps", "12"});
  what_ = "counts";
  Undisturbed(options);
  EXPECT_THAT(Output(0, 1), ContainsRegex("\nepoch 1  step 8  loss [0-9.]+\n"));
  options.back() = "24";
  Undisturbed(options);
  EXPECT_THAT(Output(0, 1), HasSubstr("resumed at step 12"));
  EXPECT_THAT(Output(0, 1),
              ContainsRegex("\nepoch 2  step 16  loss [0-9.]+ \\(32 of 64 samples\\)\n"));
}

TEST_F(ProgramsTest, SamplesThatLoadLeavesOut) {
  ExpectRefused("drops_samples", "load() returned inputs with 3 rows for 4 samples (");
  // More rows than samples are a program's own affair.
  agent_->EndGeneration("it is done");
  agent_->BeginGeneration(1, 2);
  what_ = "other_shapes";
  EXPECT_EQ(Undisturbed({})[0].at("steps"), "16");
}

TEST_F(ProgramsTest, ABatchWithoutInputs) {
  ExpectRefused("no_inputs", "load() returned no inputs for 4 samples (");
}

TEST_F(ProgramsTest, TwoSessionsOfOneFolder) {
  ExpectRefused("same_folder", "both keep checkpoints in", Folder(0, true));
}

TEST_F(ProgramsTest, TwoSessionsAtOnce) {
  ExpectRefused("nested", "a Session was made while another one of this process is there");
}

}  // namespace
}  // namespace ddprun::testing
