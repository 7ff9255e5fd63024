// Training that is interrupted and resumed ends where it would have ended.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/trees.h"
#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;

constexpr uint32_t kResumingRanks = 3;  // sums of two have one order, and halves are exact

class ResumeTest : public ::testing::Test {
 protected:
  // Runs all ranks; each with its own checkpoint directory when `directories` has several.
  void RunGeneration(const std::vector<std::string>& directories, const std::string& steps,
                     const std::string& result, const std::string& die_at = "-1",
                     bool succeeds = true, const std::string& buckets = "buckets") {
    std::filesystem::remove(directory_.File("agent"));
    ++generation_;
    const auto agent = FakeAgent::Start({.socket_path = directory_.File("agent"),
                                         .world_size = kResumingRanks,
                                         .generation = generation_});
    std::vector<Process> ranks;
    for (uint32_t rank = 0; rank < kResumingRanks; ++rank) {
      const std::string checkpoints = directory_.File(directories[rank % directories.size()]);
      outputs_[rank] =
          directory_.File("output." + std::to_string(generation_) + "." + std::to_string(rank));
      ranks.emplace_back(
          std::vector<std::string>{InBuildTree("bin/ddp_probe"), "resume", checkpoints, steps,
                                   directory_.File(result), die_at, buckets},
          WorkerVariables(directory_.path(), rank, kResumingRanks, generation_), outputs_[rank],
          Process::Start::kForked);
    }
    for (Process& process : ranks) {
      const int end = process.Wait();
      EXPECT_EQ(end == 0, succeeds) << end << process.Output();
    }
  }

  std::string Result(const std::string& name, uint32_t rank) const {
    return ReadFile(directory_.File(name) + "." + std::to_string(rank));
  }
  void ExpectSameResult(const std::string& a, const std::string& b) const {
    for (uint32_t rank = 0; rank < kResumingRanks; ++rank) {
      ASSERT_FALSE(Result(a, rank).empty());
      EXPECT_TRUE(Result(a, rank) == Result(b, rank)) << "rank " << rank;
    }
  }
  std::vector<std::filesystem::path> Checkpoints(const std::string& name) const {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.File(name))) {
      paths.push_back(entry.path());
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  TemporaryDirectory directory_;
  uint64_t generation_ = 0;
  std::string outputs_[kResumingRanks];
};

TEST_F(ResumeTest, AResumedRunEqualsAnUninterruptedOneBitByBit) {
  RunGeneration({"whole"}, "12", "whole_result");
  RunGeneration({"parts"}, "6", "half_result");
  RunGeneration({"parts"}, "12", "parts_result");
  EXPECT_THAT(ReadFile(outputs_[1]), HasSubstr("resumed at 6"));
  ExpectSameResult("whole_result", "parts_result");
  // Negative control: without the second half the results do differ.
  EXPECT_FALSE(Result("half_result", 0) == Result("whole_result", 0));
}

// A new reducer's first step rounds otherwise, and batch norm behind a layer with a bias shows it.
TEST_F(ResumeTest, TwinThatForgetsTheBucketsEndsWithOtherBits) {
  RunGeneration({"whole"}, "12", "whole_result");
  RunGeneration({"parts"}, "6", "half_result", "-1", true, "no_buckets");
  RunGeneration({"parts"}, "12", "parts_result", "-1", true, "no_buckets");
  EXPECT_THAT(ReadFile(outputs_[1]), HasSubstr("resumed at 6"));
  EXPECT_FALSE(Result("whole_result", 0) == Result("parts_result", 0));
}

TEST_F(ResumeTest, AKilledRunGoesOnFromItsLastCheckpoint) {
  RunGeneration({"whole"}, "12", "whole_result");
  RunGeneration({"killed"}, "12", "killed_result", "8", false);
  RunGeneration({"killed"}, "12", "killed_result");
  EXPECT_THAT(ReadFile(outputs_[0]), HasSubstr("resumed at 6"));
  ExpectSameResult("whole_result", "killed_result");
}

TEST_F(ResumeTest, ATornCheckpointIsReportedAndTheOneBeforeIsTaken) {
  RunGeneration({"whole"}, "12", "whole_result");
  RunGeneration({"torn"}, "9", "torn_result");
  const std::filesystem::path newest = Checkpoints("torn").back();
  std::filesystem::resize_file(newest, std::filesystem::file_size(newest) / 2);
  RunGeneration({"torn"}, "12", "torn_result");
  EXPECT_THAT(ReadFile(outputs_[0]), HasSubstr("resumed at 6"));
  EXPECT_THAT(ReadFile(outputs_[0]), HasSubstr("DATA_LOSS: checkpoint '" + newest.string() + "'"));
  ExpectSameResult("whole_result", "torn_result");
}

TEST_F(ResumeTest, RanksWithoutTheCheckpointGetItFromOneThatHasIt) {
  RunGeneration({"whole"}, "12", "whole_result");
  RunGeneration({"first_disk", "second_disk", "third_disk"}, "6", "half_result");
  // The disk of rank 0 is lost: rank 1 has nothing either, as rank 0 writes. So swap them.
  std::filesystem::rename(directory_.File("first_disk"), directory_.File("saved"));
  RunGeneration({"first_disk", "saved", "third_disk"}, "12", "moved_result");
  EXPECT_THAT(ReadFile(outputs_[0]), HasSubstr("resumed at 6"));
  ExpectSameResult("whole_result", "moved_result");
}

TEST_F(ResumeTest, BeginningAnewIsSaid) {
  RunGeneration({"disk"}, "3", "first_result");
  const std::string words = "ddprun: no rank finds a checkpoint (checkpoint-*.safetensors in '" +
                            directory_.File("disk") + "'): training begins at step 0";
  EXPECT_THAT(ReadFile(outputs_[0]), HasSubstr(words + "\n"));
  EXPECT_THAT(ReadFile(outputs_[1]), ::testing::Not(HasSubstr("training begins")));
  // Negative control: where there is one, nothing is said.
  RunGeneration({"disk"}, "3", "again_result");
  EXPECT_THAT(ReadFile(outputs_[0]), HasSubstr("resumed at 3"));
  EXPECT_THAT(ReadFile(outputs_[0]), ::testing::Not(HasSubstr("training begins")));
  // The node of rank 0 is lost, and with it its disk.
  std::filesystem::remove_all(directory_.File("disk"));
  RunGeneration({"disk"}, "3", "lost_result");
  EXPECT_THAT(ReadFile(outputs_[0]),
              HasSubstr(words + ", in generation 3. If earlier ones saved some, they are on a node "
                                "that isn't there any more: use a directory that all nodes share"));
}

TEST_F(ResumeTest, OnlyTheLastCheckpointsStay) {
  RunGeneration({"kept"}, "15", "result");
  ASSERT_EQ(Checkpoints("kept").size(), 3U);
  EXPECT_THAT(Checkpoints("kept").back().filename().string(), HasSubstr("s0000000015"));
}

TEST_F(ResumeTest, WhenNoCheckpointIsWholeTheRunSaysSo) {
  RunGeneration({"torn"}, "3", "result");
  for (const auto& path : Checkpoints("torn")) std::filesystem::resize_file(path, 5);
  RunGeneration({"torn"}, "6", "result", "-1", false);
  const std::string error = ReadFile(directory_.File("error.0"));
  EXPECT_THAT(error, HasSubstr("DATA_LOSS: no whole checkpoint in"));
}

}  // namespace
}  // namespace ddprun::testing
