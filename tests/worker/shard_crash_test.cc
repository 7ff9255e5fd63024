// The machines of a sharded training lose their power after any call of any rank, and the disk has
// done what it liked with what wasn't synced: what is resumed is whole, and not older than what
// Save has promised.
#include <gtest/gtest.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <algorithm>
#include <deque>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/fused_optimizers.h"
#include "tests/support/trees.h"
#include "tests/worker/fake_agent.h"
#include "tests/worker/processes.h"
#include "tests/worker/shard_crash_training.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/checkpoint/checkpoint_directory.h"
#include "worker/torch/checkpoint/mapped_file.h"

namespace ddprun::testing {
namespace {

using Calls = std::vector<RecordedDisk::Call>;

constexpr uint32_t kRanks = 3;

class ShardCrashTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogLevel("error");
    absl::StatusOr<std::unique_ptr<Context>> context = Context::Create();
    ASSERT_TRUE(context.ok()) << context.status();
    context_ = *std::move(context);
  }
  void TearDown() override { SetLogLevel("warning"); }

  // What all ranks of a training have done to the disk.
  Calls Train(const std::string& stage) {
    std::filesystem::remove(directory_.File("agent"));
    std::filesystem::remove(directory_.File("calls"));
    std::filesystem::remove_all(From());
    const auto agent =
        FakeAgent::Start({.socket_path = directory_.File("agent"), .world_size = kRanks});
    std::deque<Process> ranks;
    for (uint32_t rank = 0; rank < kRanks; ++rank) {
      ranks.emplace_back(std::vector<std::string>{InBuildTree("bin/shard_crash_probe"), stage,
                                                  From(), directory_.File("calls")},
                         WorkerVariables(directory_.path(), rank, kRanks),
                         directory_.File(absl::StrCat("output.", rank)));
    }
    for (Process& process : ranks) EXPECT_EQ(process.Wait(), 0) << process.Output();
    return ReadCalls(directory_.File("calls"));
  }
  std::string From() const { return directory_.File("disk"); }

  CrashTally Crash(const Calls& calls, int points, const CheckpointReader& read) {
    return CrashAfterEachCall(calls, points, From(), directory_.File("left"), read);
  }

  // One rank puts all shards together.
  ResumedSave Restore(const std::string& directory) {
    const auto layer = std::make_shared<CrashLayer>();
    FusedSGD optimizer(layer->parameters(), torch::optim::SGDOptions(0).momentum(0.5));
    Checkpointer checkpointer(*context_, layer, optimizer,
                              {.directory = directory, .tell_of_none = false});
    const auto progress = checkpointer.Restore();
    if (!progress.ok() || !progress->has_value()) return std::nullopt;
    std::vector<torch::Tensor> all = {layer->weight, layer->bias, layer->mean};
    for (const torch::Tensor& parameter : layer->parameters()) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) return kTornSave;
      const auto& state = static_cast<const torch::optim::SGDParamState&>(*found->second);
      all.push_back(state.momentum_buffer());
    }
    const int64_t number = (*progress)->epoch;
    const bool whole = std::all_of(all.begin(), all.end(), [&](const torch::Tensor& tensor) {
      return (tensor == static_cast<double>(number)).all().item<bool>();
    });
    return whole ? number : kTornSave;
  }

  static int Points() { return TestsWhole() ? 10'000 : 1000; }

  TemporaryDirectory directory_;
  std::unique_ptr<Context> context_;
};

TEST_F(ShardCrashTest, WhateverTheDiskDoesAllShardsAreOfOneSaveAndNotOlderThanPromised) {
  for (const char* stage : {"1", "2", "3"}) {
    const Calls calls = Train(stage);
    EXPECT_GE(calls.size(), 300U);
    const CrashTally tally =
        Crash(calls, Points(), [this](const auto& left) { return Restore(left); });
    EXPECT_EQ(tally.torn, 0) << stage;
    EXPECT_EQ(tally.lost, 0) << stage;
    // Each kind of result was frequent.
    EXPECT_GT(tally.from_none, Points() / 100) << stage;
    EXPECT_GT(tally.newest, Points() / 100) << stage;
  }
}

TEST_F(ShardCrashTest, TwinWithoutASyncOfAnyRanksFilesOrDirectoriesLosesWhatWasPromised) {
  const Calls calls = Train("2");
  for (const auto kind : {RecordedDisk::Kind::kSyncFile, RecordedDisk::Kind::kSyncDirectory}) {
    // Shards alone: rank 0's own file is synced.
    Calls left;
    for (const RecordedDisk::Call& call : calls) {
      const bool of_shard =
          kind == RecordedDisk::Kind::kSyncDirectory || absl::StrContains(call.path, "-of-00003");
      if (call.kind != kind || !of_shard) left.push_back(call);
    }
    const CrashTally tally = Crash(left, 300, [this](const auto& path) { return Restore(path); });
    EXPECT_GT(tally.lost, 15) << static_cast<int>(kind);
    EXPECT_EQ(tally.torn, 0) << static_cast<int>(kind);  // the checksums see to that
  }
}

// Restores without a look at checksums, in files or their names: for each rank the first shard of
// that step.
ResumedSave Trusting(const std::string& directory) {
  const std::vector<worker::CheckpointId> ids = *worker::ListCheckpoints(directory);
  for (const worker::CheckpointId& id : ids) {
    const std::string stem = worker::CheckpointName(id);
    const std::string prefix = stem.substr(0, stem.rfind(".safetensors"));
    std::vector<int64_t> numbers;
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      const std::string name = entry.path().filename();
      if (!absl::StartsWith(name, prefix) || !absl::EndsWith(name, ".safetensors")) continue;
      const auto mapped = *worker::MappedFile::Open(entry.path());
      const auto file = worker::DecodeTensorFile(mapped->bytes(), worker::TensorFileCheck::kLength);
      if (!file.ok()) continue;
      for (const auto& [key, tensor] : worker::FromTensorFile(*file, mapped)) {
        if (!tensor.is_floating_point() || tensor.dim() == 0) continue;
        numbers.push_back(static_cast<int64_t>(tensor.min().item<double>()));
        numbers.push_back(static_cast<int64_t>(tensor.max().item<double>()));
      }
    }
    if (numbers.empty()) continue;
    const auto [least, most] = std::minmax_element(numbers.begin(), numbers.end());
    return *least == *most ? *least : kTornSave;
  }
  return std::nullopt;
}

TEST_F(ShardCrashTest, TwinWithoutChecksumsTakesShardsOfTwoSaves) {
  EXPECT_GT(Crash(Train("2"), 300, Trusting).torn, 15);
}

}  // namespace
}  // namespace ddprun::testing
