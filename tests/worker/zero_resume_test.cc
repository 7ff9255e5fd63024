// Checkpoints with sharded optimizers, loss scales and compression errors: what is resumed goes on
// as if nothing had happened, on the same number of ranks bit by bit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tests/support/trees.h"
#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"

namespace ddprun::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class CheckpointedStateTest : public ::testing::Test {
 protected:
  struct Plan {
    std::string words;
    std::string steps;
    std::string result;
    std::vector<std::string> directories = {"checkpoints"};  // one a rank, or one for all
    uint32_t ranks = 2;
  };

  void Run(const Plan& plan, bool succeeds = true) {
    std::filesystem::remove(directory_.File("agent"));
    ++generation_;
    const auto agent = FakeAgent::Start({.socket_path = directory_.File("agent"),
                                         .world_size = plan.ranks,
                                         .generation = generation_});
    std::vector<Process> ranks;
    for (uint32_t rank = 0; rank < plan.ranks; ++rank) {
      std::filesystem::remove(directory_.File("output." + std::to_string(rank)));
      const std::string& place = plan.directories[rank % plan.directories.size()];
      std::vector<std::string> command = {InBuildTree("bin/checkpoint_probe"), "shm",
                                          directory_.File(place), directory_.File(plan.result),
                                          plan.steps};
      for (const auto word : absl::StrSplit(plan.words, ' ')) command.emplace_back(word);
      ranks.emplace_back(command, WorkerVariables(directory_.path(), rank, plan.ranks, generation_),
                         directory_.File("output." + std::to_string(rank)),
                         Process::Start::kForked);
    }
    for (Process& process : ranks) EXPECT_EQ(process.Wait() == 0, succeeds) << process.Output();
  }

  std::string Output(uint32_t rank) const {
    return ReadFile(directory_.File("output." + std::to_string(rank)));
  }
  std::string Result(const std::string& name, const std::string& part) const {
    return ReadFile(directory_.File(name) + "." + part);
  }
  bool SameResults(const std::string& a, const std::string& b) const {
    return Same(a, b, "0") && Same(a, b, "1") && Same(a, b, "state");
  }
  bool Same(const std::string& a, const std::string& b, const std::string& part) const {
    EXPECT_FALSE(Result(a, part).empty());
    return Result(a, part) == Result(b, part);
  }
  // The files of a directory whose names contain `part`, sorted: by step, then shards last.
  std::vector<std::filesystem::path> Files(const std::string& place,
                                           const std::string& part) const {
    std::vector<std::filesystem::path> paths;
    for (const auto& entry : std::filesystem::directory_iterator(directory_.File(place))) {
      if (entry.path().filename().string().find(part) != std::string::npos) {
        paths.push_back(entry.path());
      }
    }
    std::sort(paths.begin(), paths.end());
    return paths;
  }

  // The name of the one checkpoint, without its shards, that has `part` in it.
  std::string CheckpointOf(const std::string& part) const {
    return Files("checkpoints", part + ".safetensors").at(0).filename();
  }

  TemporaryDirectory directory_;
  uint64_t generation_ = 0;
};

class GoesOnBitByBitTest : public CheckpointedStateTest,
                           public ::testing::WithParamInterface<const char*> {};

TEST_P(GoesOnBitByBitTest, AfterARestart) {
  Run({.words = GetParam(), .steps = "12", .result = "whole", .directories = {"others"}});
  Run({.words = GetParam(), .steps = "6", .result = "half"});
  Run({.words = GetParam(), .steps = "12", .result = "resumed"});
  EXPECT_THAT(Output(1), HasSubstr("resumed at 6"));
  EXPECT_TRUE(SameResults("whole", "resumed"));
  // Negative control: the second half does change something.
  EXPECT_FALSE(SameResults("whole", "half"));
}

std::vector<const char*> Setups() {
  std::vector<const char*> ways = {"zero1",
                                   "zero2 sharded small_buckets",
                                   "zero2 offload sharded",
                                   "zero2 scaler",
                                   "power_sgd scaler zero1 sharded",
                                   "zero3 sharded small_buckets",
                                   "zero3 offload scaler"};
  if (TestsWhole()) {
    ways.insert(ways.end(), {"zero2 small_buckets", "zero1 sharded", "scaler", "power_sgd",
                             "zero3 small_buckets", "zero3 offload sharded"});
  }
  return ways;
}

INSTANTIATE_TEST_SUITE_P(Setups, GoesOnBitByBitTest, ::testing::ValuesIn(Setups()),
                         [](const auto& parameter) {
                           return absl::StrJoin(absl::StrSplit(parameter.param, ' '), "_");
                         });

class NotAddedTest : public CheckpointedStateTest,
                     public ::testing::WithParamInterface<const char*> {};

// Negative controls of the above: without Add, the same runs end elsewhere.
TEST_P(NotAddedTest, BeginsAnew) {
  Run({.words = GetParam(), .steps = "12", .result = "whole", .directories = {"others"}});
  Run({.words = GetParam(), .steps = "6", .result = "half"});
  Run({.words = GetParam(), .steps = "12", .result = "resumed"});
  EXPECT_THAT(Output(1), HasSubstr("resumed at 6"));
  EXPECT_FALSE(SameResults("whole", "resumed"));
}

INSTANTIATE_TEST_SUITE_P(Setups, NotAddedTest,
                         ::testing::Values("scaler forget", "power_sgd forget"),
                         [](const auto& parameter) {
                           return absl::StrJoin(absl::StrSplit(parameter.param, ' '), "_");
                         });

class OpenedByPythonTest : public CheckpointedStateTest,
                           public ::testing::WithParamInterface<const char*> {
 protected:
  struct Difference {
    double largest = -1;
    double bound = -1;
  };

  // How far PyTorch's logits of each checkpoint are from those of `result`.
  std::vector<Difference> Differences(const std::string& result,
                                      const std::vector<std::string>& checkpoints) {
    std::vector<std::string> command = {FindPython("py-launchers"),
                                        InSourceTree("tests/worker/checkpoint_probe.py"),
                                        directory_.File(result) + ".logits"};
    for (const std::string& checkpoint : checkpoints) {
      command.push_back(directory_.File("checkpoints") + "/" + CheckpointOf(checkpoint));
    }
    Process python(command, {}, directory_.File("python"));
    EXPECT_EQ(python.Wait(), 0) << python.Output();
    std::istringstream lines(python.Output());
    std::vector<Difference> differences(checkpoints.size());
    for (Difference& one : differences) lines >> one.largest >> one.bound;
    return differences;
  }
};

TEST_P(OpenedByPythonTest, HasTheSameLogits) {
  if (FindPython("py-launchers").empty()) {
    GTEST_SKIP() << "no Python with safetensors; scripts/setup makes it";
  }
  Run({.words = GetParam(), .steps = "6", .result = "result"});
  const std::vector<Difference> differences = Differences("result", {"s0000000006", "s0000000003"});
  const auto [largest, bound] = differences[0];
  EXPECT_GE(largest, 0);
  EXPECT_LE(largest, bound);
  EXPECT_LT(bound, 1e-2);
  // Negative control: those of three steps before are others.
  EXPECT_GT(differences[1].largest, 10 * bound);
}

INSTANTIATE_TEST_SUITE_P(
    Setups, OpenedByPythonTest,
    ::testing::ValuesIn(FewOrAll<const char*>({"plain", "zero3 sharded small_buckets"},
                                              {"zero1", "zero2 sharded"})),
    [](const auto& parameter) { return absl::StrJoin(absl::StrSplit(parameter.param, ' '), "_"); });

struct Change {
  const char* name;
  std::string before;
  uint32_t ranks_before;
  std::string after;
  uint32_t ranks_after;
};

class AnotherWorldTest : public CheckpointedStateTest,
                         public ::testing::WithParamInterface<Change> {};

TEST_P(AnotherWorldTest, HasTheSameParametersAndTheSameState) {
  const Change& change = GetParam();
  Run({.words = change.before, .steps = "6", .result = "before", .ranks = change.ranks_before});
  Run({.words = change.after, .steps = "6", .result = "after", .ranks = change.ranks_after});
  EXPECT_THAT(Output(0), HasSubstr("resumed at 6"));
  EXPECT_TRUE(Same("before", "after", "0"));
  EXPECT_TRUE(Same("before", "after", "state"));
  // The job trains on; negative control: the state differs then.
  Run({.words = change.after, .steps = "7", .result = "later", .ranks = change.ranks_after});
  EXPECT_FALSE(Same("before", "later", "state"));
}

std::vector<Change> Changes() {
  std::vector<Change> changes = {
      {"sharded_2_to_3", "zero2 sharded small_buckets", 2, "zero2", 3},
      {"whole_3_to_sharded_2", "zero1", 3, "zero2 sharded", 2},
      {"plain_to_sharded_3", "plain", 2, "zero1 sharded", 3},
      {"sharded_3_to_plain_1", "zero2 sharded", 3, "plain", 1},
      // The same number of ranks: each finds the shard of its number, which isn't its share any
      // more.
      {"sharded_in_other_buckets", "zero2 sharded small_buckets", 2, "zero2 sharded", 2},
      {"sharded_in_another_stage", "zero1 sharded", 2, "zero2 sharded small_buckets", 2},
      {"sharded_2_to_plain_2", "zero2 sharded", 2, "plain", 2},
      {"stage_3_sharded_2_to_stage_2_3", "zero3 sharded small_buckets", 2, "zero2", 3},
      {"stage_2_sharded_3_to_stage_3_2", "zero2 sharded", 3, "zero3 sharded small_buckets", 2},
      {"stage_3_in_other_buckets", "zero3 sharded small_buckets", 2, "zero3 sharded", 2},
      {"stage_3_to_plain_1", "zero3 small_buckets", 3, "plain", 1},
      {"plain_to_stage_3", "plain", 2, "zero3 sharded small_buckets", 3},
  };
  if (TestsWhole()) {
    changes.push_back({"whole_to_plain", "zero2 small_buckets", 2, "plain", 2});
    changes.push_back({"offloaded_2_to_1", "zero2 offload sharded", 2, "zero2 offload", 1});
    changes.push_back({"stage_3_offloaded_2_to_1", "zero3 offload sharded", 2, "zero3 offload", 1});
    changes.push_back({"stage_3_to_stage_1", "zero3 small_buckets", 2, "zero1 sharded", 3});
  }
  return changes;
}

INSTANTIATE_TEST_SUITE_P(Changes, AnotherWorldTest, ::testing::ValuesIn(Changes()),
                         [](const auto& parameter) { return parameter.param.name; });

TEST_F(CheckpointedStateTest, ACheckpointThatLacksAShardIsNotTaken) {
  const std::string words = "zero2 sharded small_buckets";
  Run({.words = words, .steps = "9", .result = "whole"});
  const std::vector<std::filesystem::path> shards = Files("checkpoints", "-r00001-of-00002");
  ASSERT_EQ(shards.size(), 3U);
  std::filesystem::remove(shards.back());
  std::filesystem::resize_file(shards[1], std::filesystem::file_size(shards[1]) / 2);
  Run({.words = words, .steps = "9", .result = "again"});
  EXPECT_THAT(Output(0), HasSubstr("resumed at 3"));
  EXPECT_THAT(Output(0), HasSubstr("no rank has the shard '" + shards.back().filename().string()));
  EXPECT_THAT(Output(0) + Output(1), HasSubstr("shard '" + shards[1].string() + "': "));
  EXPECT_TRUE(SameResults("whole", "again"));
}

// The missing shard may be on a machine that comes back after the others have gone on without it.
TEST_F(CheckpointedStateTest, WhatLacksAShardStaysOlderThanWhatCameAfterIt) {
  const std::string words = "zero2 sharded small_buckets";
  Run({.words = words, .steps = "3", .result = "first"});
  Run({.words = words, .steps = "6", .result = "second"});
  std::filesystem::remove(Files("checkpoints", "s0000000006-r00001-of-00002").at(0));
  Run({.words = words, .steps = "6", .result = "third"});
  EXPECT_THAT(Output(0), HasSubstr("resumed at 3"));
  EXPECT_THAT(Files("checkpoints", "s0000000006.safetensors").back().filename().string(),
              HasSubstr("checkpoint-f000003-"));
}

TEST_F(CheckpointedStateTest, WhatOneRankCantResumeNoneDoesAndAllSayWhy) {
  Run({.words = "zero1 picky", .steps = "3", .result = "before"});
  Run({.words = "zero1 picky", .steps = "6", .result = "after"}, /*succeeds=*/false);
  EXPECT_THAT(Output(1), HasSubstr("FAILED_PRECONDITION: this taste isn't mine"));
  EXPECT_THAT(Output(0), HasSubstr("PeerError: rank 1 could not resume from "
                                   "'checkpoint-f000001-g000001-s0000000003.safetensors': "
                                   "this taste isn't mine"));
  EXPECT_THAT(Output(0) + Output(1), Not(HasSubstr("resumed at")));
}

TEST_F(CheckpointedStateTest, ShardsAreFetchedFromTheRanksThatHaveThem) {
  const std::string words = "zero2 sharded small_buckets";
  const std::vector<std::string> disks = {"first_disk", "second_disk"};
  const std::vector<std::string> swapped = {"second_disk", "first_disk"};
  Run({.words = words, .steps = "12", .result = "whole"});
  Run({.words = words, .steps = "6", .result = "half", .directories = disks});
  EXPECT_EQ(Files("second_disk", "checkpoint-").size(), 2U);  // its own shards of both
  Run({.words = words, .steps = "12", .result = "moved", .directories = swapped});
  EXPECT_THAT(Output(0), HasSubstr("resumed at 6"));
  EXPECT_TRUE(SameResults("whole", "moved"));
}

TEST_F(CheckpointedStateTest, OldShardsGoWithTheirCheckpoints) {
  Run({.words = "zero1 sharded", .steps = "15", .result = "result"});
  EXPECT_EQ(Files("checkpoints", "-r0000").size(), 6U);  // of the last three
  EXPECT_EQ(Files("checkpoints", "checkpoint-").size(), 9U);
  EXPECT_THAT(Files("checkpoints", "checkpoint-").front().filename().string(),
              HasSubstr("s0000000009"));
}

// What lacks a shard, or has one that is cut short, is none of those that stay.
TEST_F(CheckpointedStateTest, IncompleteCheckpointsDontCountAmongThoseThatStay) {
  const std::string words = "zero1 sharded keep2";
  Run({.words = words, .steps = "9", .result = "before"});
  EXPECT_EQ(Files("checkpoints", "s0000000003").size(), 0U);
  const std::vector<std::filesystem::path> newest = Files("checkpoints", "s0000000009-r00001");
  ASSERT_EQ(newest.size(), 1U);
  std::filesystem::resize_file(newest[0], std::filesystem::file_size(newest[0]) / 2);
  // Shards of a writer that was killed between its shards and their checkpoint.
  for (const char* shard : {"-r00000-of-00002", "-r00001-of-00002"}) {
    const std::string name = Files("checkpoints", std::string("s0000000006") + shard)[0].filename();
    std::filesystem::copy(directory_.File("checkpoints") + "/" + name,
                          directory_.File("checkpoints") +
                              "/checkpoint-f000001-g000001-s0000000010" + shard + ".safetensors");
  }
  Run({.words = words, .steps = "9", .result = "after"});
  EXPECT_THAT(Output(0), HasSubstr("resumed at 6"));
  // The new step 9, and step 6; the one that is cut short and the shards alone don't take its
  // place.
  EXPECT_EQ(Files("checkpoints", "s0000000006").size(), 3U);
  EXPECT_EQ(Files("checkpoints", "f000002-g000002-s0000000009").size(), 3U);
  std::filesystem::remove(directory_.File("checkpoints") + "/" +
                          CheckpointOf("f000002-g000002-s0000000009"));
  Run({.words = words, .steps = "6", .result = "again"});
  EXPECT_THAT(Output(0), HasSubstr("resumed at 6"));
  // After another two whole checkpoints all older ones go.
  Run({.words = words, .steps = "12", .result = "later"});
  EXPECT_EQ(Files("checkpoints", "checkpoint-").size(), 6U);
}

class BesideTrainingTest : public CheckpointedStateTest,
                           public ::testing::WithParamInterface<const char*> {};

// Training goes on while they are written, and the last ones are written by the destructor.
TEST_P(BesideTrainingTest, TheSameFilesAreWritten) {
  const std::string words = GetParam();
  Run({.words = words, .steps = "9", .result = "whole", .directories = {"at_once"}});
  Run({.words = words + " async", .steps = "9", .result = "same"});
  EXPECT_TRUE(SameResults("whole", "same"));
  const std::vector<std::filesystem::path> expected = Files("at_once", "checkpoint-");
  const std::vector<std::filesystem::path> written = Files("checkpoints", "checkpoint-");
  ASSERT_EQ(written.size(), expected.size());
  for (size_t i = 0; i < written.size(); ++i) {
    EXPECT_TRUE(ReadFile(written[i]) == ReadFile(expected[i])) << written[i];
  }
}

INSTANTIATE_TEST_SUITE_P(Setups, BesideTrainingTest,
                         ::testing::Values("plain", "zero2 sharded small_buckets",
                                           "zero3 sharded small_buckets", "zero1 power_sgd scaler"),
                         [](const auto& parameter) {
                           return absl::StrJoin(absl::StrSplit(parameter.param, ' '), "_");
                         });

TEST_F(CheckpointedStateTest, OldOnesGoWhereTheyAreWrittenBesideTraining) {
  Run({.words = "plain async", .steps = "15", .result = "result"});
  EXPECT_EQ(Files("checkpoints", "checkpoint-").size(), 3U);
  // Old shards go at the next checkpoint, when all ranks know that the newest one is complete.
  Run({.words = "zero1 sharded async",
       .steps = "15",
       .result = "result",
       .directories = {"with_shards"}});
  EXPECT_EQ(Files("with_shards", "-r0000").size(), 8U);
}

// If a shard isn't written, there is no checkpoint, and the rank that wrote its own learns why.
TEST_F(CheckpointedStateTest, WhatCannotBeWrittenBesideTrainingIsAnErrorAtTheNextOne) {
  // The directory isn't there when the run begins, and can't be made later.
  std::filesystem::create_symlink(directory_.File("gone") + "/away", directory_.File("blocked"));
  Run({.words = "zero1 sharded async",
       .steps = "6",
       .result = "never",
       .directories = {"disk", "blocked"}},
      /*succeeds=*/false);
  EXPECT_THAT(Output(1), HasSubstr("create directory '" + directory_.File("blocked") + "'"));
  EXPECT_THAT(Output(0), HasSubstr("PeerError: rank 1 could not write the checkpoint: create"));
  ASSERT_EQ(Files("disk", "checkpoint-").size(), 1U);
  EXPECT_THAT(Files("disk", "checkpoint-")[0].filename().string(), HasSubstr("-r00000-of-00002"));
  // The last one has no next.
  Run({.words = "plain async", .steps = "3", .result = "ends", .directories = {"blocked"}});
  EXPECT_THAT(Output(0), HasSubstr("the last checkpoint was not written: "));
}

// The file has 96 MiB, and only the state's 64 MiB may be in memory; each rank used to read and
// copy the file first.
TEST_F(CheckpointedStateTest, ResumingTakesNoMoreMemoryThanWhatIsResumed) {
  Run({.words = "plain big", .steps = "3", .result = "before"});
  EXPECT_GT(std::filesystem::file_size(Files("checkpoints", "checkpoint-").front()), 96U << 20);
  Run({.words = "plain big tight", .steps = "3", .result = "after"});
  EXPECT_THAT(Output(0), HasSubstr("resumed at 3"));
  EXPECT_TRUE(Same("before", "after", "state"));
  // Negative control: the limit is one.
  Run({.words = "plain big too_tight", .steps = "3", .result = "never"}, /*succeeds=*/false);
}

TEST_F(CheckpointedStateTest, OnAnotherNumberOfRanksWhatDiffersByRankBeginsAnewWithAWarning) {
  Run({.words = "power_sgd", .steps = "6", .result = "before"});
  EXPECT_THAT(Output(0), Not(HasSubstr("begins anew")));
  Run({.words = "power_sgd", .steps = "9", .result = "after", .ranks = 3});
  EXPECT_THAT(Output(2), HasSubstr("no 'power_sgd' for rank 2 of 3; it begins anew"));
}

}  // namespace
}  // namespace ddprun::testing
