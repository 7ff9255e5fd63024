#include "worker/torch/checkpoint/checkpoint_directory.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "worker/torch/checkpoint/atomic_file.h"
#include "worker/torch/checkpoint/mapped_file.h"

namespace ddprun::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;

class CheckpointDirectoryTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/checkpoints_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string PathOf(const CheckpointId& id) const { return directory_ + "/" + CheckpointName(id); }

  // A whole checkpoint that holds its own step.
  void Write(const CheckpointId& id, const Manifest& manifest = {}) const {
    TensorFile file;
    file.metadata["step"] = std::to_string(id.step);
    PutManifest(manifest, file.metadata);
    ASSERT_TRUE(WriteFileAtomically(PathOf(id), {EncodeTensorFileHeader(file)}).ok());
  }
  // A shard that holds a word; its checksum.
  uint32_t WriteShard(const CheckpointId& id, uint32_t shard, const std::string& word) const {
    TensorFile file;
    file.metadata["word"] = word;
    uint32_t checksum = 0;
    const std::string header = EncodeTensorFileHeader(file, &checksum);
    const std::string name = ShardName(id, shard, 2, checksum);
    EXPECT_TRUE(WriteFileAtomically(directory_ + "/" + name, {header}).ok());
    return checksum;
  }
  // What stays of those that are whole by themselves, when `newest` has been written.
  PrunePlan Plan(const CheckpointId& newest, uint32_t keep) const {
    return PlanPruning(newest, FindCheckpoints(directory_, newest), keep);
  }
  void Truncate(const CheckpointId& id, uintmax_t size) const {
    std::filesystem::resize_file(PathOf(id), size);
  }

  std::string directory_;
};

TEST_F(CheckpointDirectoryTest, NamesRoundTripAndSortAsTheIdsDo) {
  const CheckpointId id = {.fence = 1, .generation = 3, .step = 120};
  EXPECT_EQ(CheckpointName(id), "checkpoint-f000001-g000003-s0000000120.safetensors");
  EXPECT_EQ(ParseCheckpointName(CheckpointName(id)), id);
  const CheckpointId later = {.fence = 2, .generation = 1, .step = 5};
  EXPECT_LT(id, later);
  EXPECT_LT(CheckpointName(id), CheckpointName(later));
}

TEST_F(CheckpointDirectoryTest, OtherNamesAreNoCheckpoints) {
  for (const char* name :
       {"", "checkpoint-", "checkpoint-f1-g2-s3.safetensors.77.tmp", "checkpoint-f1-g2.safetensors",
        "checkpoint-f1-g2-sx.safetensors", "checkpoint-f-1-g2-s3.safetensors",
        "checkpoint-f1-g2-s3-s4.safetensors", "f1-g2-s3.safetensors"}) {
    EXPECT_EQ(ParseCheckpointName(name), std::nullopt) << name;
  }
}

TEST_F(CheckpointDirectoryTest, AMissingDirectoryHasNone) {
  const absl::StatusOr<NewestCheckpoint> newest = LoadNewestCheckpoint(directory_ + "/none");
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->loaded, nullptr);
  EXPECT_THAT(newest->damaged, IsEmpty());
}

TEST_F(CheckpointDirectoryTest, TheNewestIsTaken) {
  Write({1, 1, 10});
  Write({1, 1, 20});
  EXPECT_EQ(LoadNewestCheckpoint(directory_)->loaded->file.metadata.at("step"), "20");
}

// A worker that was cut off writes on with the fence and generation it had.
TEST_F(CheckpointDirectoryTest, AHigherFenceOrGenerationBeatsAHigherStep) {
  Write({1, 3, 500});
  Write({1, 4, 30});
  EXPECT_EQ(LoadNewestCheckpoint(directory_)->loaded->id.step, 30U);
  Write({2, 1, 20});
  EXPECT_EQ(LoadNewestCheckpoint(directory_)->loaded->id.step, 20U);
}

TEST_F(CheckpointDirectoryTest, TornOnesAreReportedAndTheOneBeforeIsTaken) {
  Write({1, 1, 10});
  Write({1, 1, 20});
  Write({1, 1, 30});
  Truncate({1, 1, 30}, 20);
  Truncate({1, 1, 20}, 0);
  const absl::StatusOr<NewestCheckpoint> newest = LoadNewestCheckpoint(directory_);
  ASSERT_TRUE(newest.ok()) << newest.status();
  EXPECT_EQ(newest->loaded->id.step, 10U);
  ASSERT_THAT(newest->damaged, SizeIs(2));
  EXPECT_EQ(newest->damaged[0].code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(newest->damaged[0].message()), HasSubstr(PathOf({1, 1, 30})));
}

TEST_F(CheckpointDirectoryTest, WhenAllAreTornThereIsNone) {
  Write({1, 1, 10});
  Truncate({1, 1, 10}, 9);
  const absl::StatusOr<NewestCheckpoint> newest = LoadNewestCheckpoint(directory_);
  EXPECT_EQ(newest->loaded, nullptr);
  EXPECT_THAT(newest->damaged, SizeIs(1));
}

TEST_F(CheckpointDirectoryTest, PruningKeepsTheLastAndWhatIsNewer) {
  for (const uint64_t step : {10, 20, 30, 40}) Write({1, 1, step});
  Write({2, 2, 5});
  std::ofstream(directory_ + "/checkpoint-f000001-g000001-s0000000035.safetensors.77.tmp")
      << "half";
  std::ofstream(directory_ + "/notes.txt") << "mine";
  PruneCheckpoints(directory_, Plan({1, 1, 40}, 2));
  EXPECT_THAT(*ListCheckpoints(directory_),
              ElementsAre(CheckpointId{2, 2, 5}, CheckpointId{1, 1, 40}, CheckpointId{1, 1, 30}));
  EXPECT_THAT(*ListDirectory(directory_), SizeIs(4));  // the half one is gone, the notes are not
}

// A worker that was cut off clears up after its own checkpoint, while the generation that goes on
// without it is writing one; it used to take that file away.
TEST_F(CheckpointDirectoryTest, WhoWasCutOffTakesNothingFromALaterGeneration) {
  Write({1, 1, 10});
  const std::string being_written = CheckpointName({1, 2, 10}) + ".88.tmp";
  std::ofstream(directory_ + "/" + being_written) << "half";
  std::ofstream(directory_ + "/" + ShardName({1, 2, 10}, 0, 2, 7)) << "whole";
  Write({1, 1, 20});
  PruneCheckpoints(directory_, Plan({1, 1, 20}, 1));
  EXPECT_THAT(
      *ListDirectory(directory_),
      ElementsAre(CheckpointName({1, 1, 20}), ShardName({1, 2, 10}, 0, 2, 7), being_written));
  // Negative control: of its own past it goes.
  PruneCheckpoints(directory_, Plan({1, 2, 20}, 1));
  EXPECT_THAT(*ListDirectory(directory_),
              ElementsAre(CheckpointName({1, 1, 20}), ShardName({1, 2, 10}, 0, 2, 7)));
}

TEST_F(CheckpointDirectoryTest, TheBestStaysBesideTheLast) {
  const std::vector<std::optional<double>> scores = {0.5, 0.75, 0.75, std::nullopt, -1.0, 0.5};
  for (size_t i = 0; i < scores.size(); ++i) Write({1, 1, 10 * (i + 1)}, {.score = scores[i]});
  PruneCheckpoints(directory_, Plan({1, 1, 60}, 2));
  EXPECT_THAT(*ListCheckpoints(directory_),
              ElementsAre(CheckpointId{1, 1, 60}, CheckpointId{1, 1, 50}, CheckpointId{1, 1, 30}));
  // Negative control: a better one takes its place.
  Write({1, 1, 70}, {.score = 0.8});
  PruneCheckpoints(directory_, Plan({1, 1, 70}, 2));
  EXPECT_THAT(*ListCheckpoints(directory_),
              ElementsAre(CheckpointId{1, 1, 70}, CheckpointId{1, 1, 60}));
}

TEST_F(CheckpointDirectoryTest, AManifestRoundTrips) {
  const Manifest manifest = {.shards = {0, 0xdeadbeef, 7}, .score = 0.1};
  TensorFile file;
  PutManifest(manifest, file.metadata);
  EXPECT_EQ(file.metadata.at("shard_crc32"), "00000000 deadbeef 00000007");
  EXPECT_EQ(ReadManifest(file)->shards, manifest.shards);
  EXPECT_EQ(ReadManifest(file)->score, manifest.score);
  EXPECT_THAT(ReadManifest({})->shards, IsEmpty());
  EXPECT_EQ(ReadManifest({})->score, std::nullopt);
  file.metadata["shard_crc32"] = "1 two";
  EXPECT_EQ(ReadManifest(file).status().code(), absl::StatusCode::kDataLoss);
  file.metadata["shard_crc32"] = "1";
  file.metadata["score"] = "high";
  EXPECT_EQ(ReadManifest(file).status().code(), absl::StatusCode::kDataLoss);
}

// A save that broke off, or a rank on another disk, leaves shards of the same step.
TEST_F(CheckpointDirectoryTest, AShardOfAnotherSaveIsNotMistakenForOnesOwn) {
  const uint32_t stale = WriteShard({1, 1, 10}, 0, "stale");
  const uint32_t own = WriteShard({1, 1, 10}, 0, "own");
  Write({1, 1, 10}, {.shards = {own, WriteShard({1, 1, 10}, 1, "own")}});
  const FoundCheckpoint found = FindCheckpoints(directory_).at(0);
  EXPECT_TRUE(HasShard(directory_, found, 0) && HasShard(directory_, found, 1));
  const std::string name = ShardName({1, 1, 10}, 0, 2, own);
  EXPECT_EQ((*LoadCheckpointFile(directory_, name))->file.metadata.at("word"), "own");
  // A shard under another shard's name is found out.
  std::filesystem::rename(directory_ + "/" + ShardName({1, 1, 10}, 0, 2, stale),
                          directory_ + "/" + name);
  EXPECT_EQ(LoadCheckpointFile(directory_, name).status().code(), absl::StatusCode::kDataLoss);
}

// With a damaged one, or shards without a checkpoint, counted among them the last whole one went.
TEST_F(CheckpointDirectoryTest, OnlyWholeOnesCountAmongThoseThatStay) {
  for (const uint64_t step : {10, 20, 30, 40}) Write({1, 1, step});
  Truncate({1, 1, 20}, 30);
  Truncate({1, 1, 40}, 0);
  std::ofstream(directory_ + "/" + ShardName({1, 1, 50}, 0, 2, 7)) << "shard";
  PruneCheckpoints(directory_, Plan({1, 1, 50}, 2));
  EXPECT_EQ(LoadNewestCheckpoint(directory_, {.before = CheckpointId{1, 1, 30}})->loaded->id.step,
            10U);
  EXPECT_THAT(*ListDirectory(directory_), SizeIs(5));
  // Fewer than are to stay: all do.
  EXPECT_EQ(Plan({1, 1, 50}, 3).oldest, std::nullopt);
  PruneCheckpoints(directory_, Plan({1, 1, 50}, 3));
  EXPECT_THAT(*ListDirectory(directory_), SizeIs(5));
  // What isn't whole goes when it is older than what stays.
  PruneCheckpoints(directory_, Plan({1, 1, 50}, 1));
  EXPECT_THAT(*ListDirectory(directory_),
              ElementsAre(CheckpointName({1, 1, 30}), CheckpointName({1, 1, 40}),
                          ShardName({1, 1, 50}, 0, 2, 7)));
}

// A job that trains on after a fault saves the steps since the last checkpoint again.
TEST_F(CheckpointDirectoryTest, AStepThatWasSavedAgainCountsOnce) {
  Write({1, 1, 10});
  Write({1, 1, 20});
  Write({1, 2, 20});
  PruneCheckpoints(directory_, Plan({1, 2, 20}, 2));
  EXPECT_THAT(*ListCheckpoints(directory_),
              ElementsAre(CheckpointId{1, 2, 20}, CheckpointId{1, 1, 20}, CheckpointId{1, 1, 10}));
  Write({1, 2, 30});
  PruneCheckpoints(directory_, Plan({1, 2, 30}, 2));
  EXPECT_THAT(*ListCheckpoints(directory_),
              ElementsAre(CheckpointId{1, 2, 30}, CheckpointId{1, 2, 20}));
}

TEST_F(CheckpointDirectoryTest, ShardsAreNoCheckpointsAndGoWithTheirOwn) {
  EXPECT_EQ(ShardName({1, 3, 120}, 1, 4, 0xabc),
            "checkpoint-f000001-g000003-s0000000120-r00001-of-00004-00000abc.safetensors");
  for (const uint64_t step : {10, 20}) {
    Write({1, 1, step});
    for (const uint32_t shard : {0, 1}) {
      std::ofstream(directory_ + "/" + ShardName({1, 1, step}, shard, 2, 7)) << "shard";
    }
  }
  EXPECT_THAT(*ListCheckpoints(directory_), SizeIs(2));
  PruneCheckpoints(directory_, Plan({1, 1, 20}, 1));
  EXPECT_THAT(*ListDirectory(directory_),
              ElementsAre(ShardName({1, 1, 20}, 0, 2, 7), ShardName({1, 1, 20}, 1, 2, 7),
                          CheckpointName({1, 1, 20})));
}

TEST_F(CheckpointDirectoryTest, OneBeforeAnotherCanBeAskedFor) {
  for (const uint64_t step : {10, 20, 30}) Write({1, 1, step});
  EXPECT_EQ(LoadNewestCheckpoint(directory_, {.before = CheckpointId{1, 1, 30}})->loaded->id.step,
            20U);
  EXPECT_EQ(LoadNewestCheckpoint(directory_, {.before = CheckpointId{1, 1, 10}})->loaded, nullptr);
  EXPECT_EQ(LoadNewestCheckpoint(directory_, {.only = CheckpointId{1, 1, 10}})->loaded->id.step,
            10U);
  EXPECT_EQ(LoadNewestCheckpoint(directory_, {.only = CheckpointId{1, 1, 15}})->loaded, nullptr);
}

TEST_F(CheckpointDirectoryTest, AWriteThatFailsLeavesTheOldFileAndNothingElse) {
  Write({1, 1, 10});
  const std::string blocked = directory_ + "/blocked";
  std::filesystem::create_directory(blocked);
  EXPECT_FALSE(WriteFileAtomically(blocked, {"bytes"}).ok());  // rename over a directory
  EXPECT_THAT(*ListDirectory(directory_), SizeIs(2));
  EXPECT_EQ(LoadNewestCheckpoint(directory_)->loaded->id.step, 10U);
}

TEST_F(CheckpointDirectoryTest, ErrorsNameThePath) {
  const absl::Status status = WriteFileAtomically(directory_ + "/none/file", {"x"});
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr(directory_ + "/none/file"));
  EXPECT_THAT(std::string(MappedFile::Open(directory_ + "/gone").status().message()),
              HasSubstr(directory_ + "/gone"));
}

TEST_F(CheckpointDirectoryTest, AnEmptyFileIsMappedToo) {
  std::ofstream(directory_ + "/empty").close();
  const auto mapped = MappedFile::Open(directory_ + "/empty");
  ASSERT_TRUE(mapped.ok()) << mapped.status();
  EXPECT_EQ((*mapped)->bytes(), "");
}

// Another rank may still read the file that pruning deletes.
TEST_F(CheckpointDirectoryTest, ALoadedCheckpointOutlivesItsFile) {
  Write({1, 1, 10});
  const auto loaded = LoadCheckpointFile(directory_, CheckpointName({1, 1, 10}));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  std::filesystem::remove(PathOf({1, 1, 10}));
  EXPECT_TRUE(DecodeTensorFile((*loaded)->bytes).ok());
}

}  // namespace
}  // namespace ddprun::worker
