// Programs as one ports them from LibTorch's tutorials (ported_programs.cc).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/worker/programs_testing.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

// The file would have zeros in the place of what other ranks keep. Twin: stage 2.
TEST_F(ProgramsTest, TorchSaveOfParametersThatAreSharedOut) {
  what_ = "torch_save";
  std::vector<std::string> options = Folder(0, true);
  options.insert(options.end(), {"--zero_stage", "2"});
  const auto seen = Undisturbed(options);
  EXPECT_EQ(seen[1].at("saved"), seen[1].at("trained"));
  options[1] = directory_.File("out1");
  options.back() = "3";
  ExpectRefused("torch_save", "is in the shares of a ZeroOptimizer (stage 3): hold", options);
}

// Gradients of what torch::load has put in the parameters' place aren't averaged.
TEST_F(ProgramsTest, TorchLoadAfterPrepare) {
  for (const char* stage : {"0", "1", "2", "3"}) {
    SCOPED_TRACE(stage);
    std::vector<std::string> options = Folder(stage[0] - '0', true);
    options.insert(options.end(), {"--zero_stage", stage});
    ExpectRefused("torch_load", "call torch::load,", options);
    AgainInANewGeneration();
  }
}

TEST_F(ProgramsTest, OneRankHasTheWholeModel) {
  what_ = "save_whole";
  for (const char* stage : {"0", "3"}) {
    std::vector<std::string> options = Folder(0, true);
    options.insert(options.end(), {"--zero_stage", stage, "--checkpoint_dir",
                                   directory_.File(absl::StrCat("checkpoints", stage))});
    const auto seen = Undisturbed(options);
    EXPECT_EQ(seen[0].at("alike5"), "1");
    EXPECT_EQ(seen[0].at("alike16"), "1");
  }
}

TEST_F(ProgramsTest, OneRankThatUsesTheModelAloneIsToldHow) {
  what_ = "sample_alone";
  for (const char* backend : {"gloo", "shm"}) {
    const std::vector<std::string> options = {"--zero_stage", "3", "--backend", backend};
    Process& alone = Start(0, 2, 1, "", options);
    Process& other = Start(1, 2, 1, "", options);
    EXPECT_EQ(alone.Wait(), 1);
    EXPECT_EQ(other.Wait(), 0);
    EXPECT_THAT(Output(0, 1), HasSubstr("what Session::WholeParameters() returns"));
    AgainInANewGeneration();
  }
}

TEST_F(ProgramsTest, SamplesInTheirOrder) {
  KillTenTimes("in_order", /*saves=*/true);
  EXPECT_EQ(Seen(0)["seen"], "0,8,16,0,8,16");
}

TEST_F(ProgramsTest, TorchClipOfGradientsThatAreSharedOut) {
  for (const char* kind : {"torch_clip", "torch_clip_value"}) {
    for (const char* stage : {"2", "3"}) {
      SCOPED_TRACE(absl::StrCat(kind, " in stage ", stage));
      ExpectRefused(kind, "a Session clips by --max_grad_norm", {"--zero_stage", stage});
      AgainInANewGeneration();
    }
  }
}

// Twin: where a rank has its gradients, LibTorch's function clips them.
TEST_F(ProgramsTest, TorchClipOfGradientsThatAreHere) {
  what_ = "torch_clip";
  EXPECT_FALSE(Undisturbed({"--zero_stage", "1"})[0].at("digest").empty());
}

TEST_F(ProgramsTest, ZeroGradOfTheProgramsOwn) {
  what_ = "zero_grad";
  for (const char* stage : {"0", "2", "3"}) {
    EXPECT_FALSE(Undisturbed({"--zero_stage", stage})[0].at("digest").empty()) << stage;
  }
}

TEST_F(ProgramsTest, ALossThatTheModelHasNoPartIn) {
  for (const char* stage : {"0", "1", "2", "3"}) {
    for (const char* kind : {"other_loss", "other_loss_once"}) {
      SCOPED_TRACE(absl::StrCat(kind, " in stage ", stage));
      ExpectRefused(kind, "the session's model had no part in", {"--zero_stage", stage});
      AgainInANewGeneration();
    }
  }
  ExpectRefused("other_loss_once", "the session's model had no part in",
                {"--find_unused_parameters"});
}

TEST_F(ProgramsTest, TwoPassesThroughBatchNorm) { KillTenTimes("siamese", /*saves=*/false); }

TEST_F(ProgramsTest, TwoPassesThroughBatchNormOfOneWorker) {
  what_ = "siamese";
  agent_->EndGeneration("it is for another test");
  agent_->BeginGeneration(1, 1);
  EXPECT_EQ(Start(0, 1, 1).Wait(), 0) << Output(0, 1);
}

TEST_F(ProgramsTest, Dcgan) { KillTenTimes("dcgan", /*saves=*/false); }

}  // namespace
}  // namespace ddprun::testing
