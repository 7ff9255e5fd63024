// The power fails after any call of a Checkpointer, and the disk has done what it liked with what
// wasn't synced: what is resumed is whole, and not older than what Save has promised.
#include <gtest/gtest.h>
#include <torch/nn/module.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/fused_optimizers.h"
#include "tests/unit/worker/torch/checkpoint/recorded_disk.h"
#include "worker/torch/checkpoint/atomic_file.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/checkpoint/checkpoint_directory.h"
#include "worker/torch/checkpoint/mapped_file.h"

namespace ddprun::testing {
namespace {

using worker::FileCalls;

// Each save has a number, which all that is saved is filled with; its epoch, too.
struct Layer : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::zeros({300}));
  torch::Tensor bias = register_parameter("bias", torch::zeros({7}));
  torch::Tensor mean = register_buffer("mean", torch::zeros({5}));
};

// State that differs between the ranks: each has a shard of its own.
struct Errors : CheckpointedState {
  torch::Tensor value = torch::zeros({200});
  Tensors SaveState() const override { return {{"value", value}}; }
  absl::Status RestoreState(const Tensors& state) override {
    value = state.at("value");
    return absl::OkStatus();
  }
  bool differs_by_rank() const override { return true; }
};

struct Training {
  std::shared_ptr<Layer> layer = std::make_shared<Layer>();
  FusedSGD optimizer = FusedSGD(layer->parameters(), torch::optim::SGDOptions(0).momentum(0.5));
  Errors errors;

  Training() { Fill(0); }
  std::vector<torch::Tensor> All() {
    std::vector<torch::Tensor> all = {layer->weight, layer->bias, layer->mean, errors.value};
    for (const torch::Tensor& parameter : {layer->weight, layer->bias}) {
      const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
      if (found == optimizer.state().end()) continue;
      const auto& state = static_cast<const torch::optim::SGDParamState&>(*found->second);
      all.push_back(state.momentum_buffer());
    }
    return all;
  }
  void Fill(double number) {
    const torch::NoGradGuard no_grad;
    for (torch::Tensor parameter : {layer->weight, layer->bias}) {
      parameter.mutable_grad() = torch::full_like(parameter, number);
    }
    optimizer.step();  // makes the momentum
    for (torch::Tensor& tensor : All()) tensor.fill_(number);
  }
  bool IsFilledWith(double number) {
    bool is = true;
    for (const torch::Tensor& tensor : All()) is = is && (tensor == number).all().item<bool>();
    return is;
  }
};

class CrashPointsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SetLogLevel("error");
    std::string pattern = ::testing::TempDir() + "/crash_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    absl::StatusOr<std::unique_ptr<Context>> context = Context::Create();
    ASSERT_TRUE(context.ok()) << context.status();
    context_ = *std::move(context);
  }
  void TearDown() override {
    context_.reset();
    std::filesystem::remove_all(root_);
    SetLogLevel("warning");
  }

  // Two starts of a job, with and without shards, that save in all ways; a step twice, too.
  void Train(RecordedDisk& disk) {
    worker::UseFileCalls(&disk);
    const absl::Cleanup back = [] { worker::UseFileCalls(nullptr); };
    int64_t number = 0;
    for (const bool sharded : {true, false}) {
      Training training;
      const auto checkpointer = Make(training, From(), sharded);
      ASSERT_TRUE(checkpointer->Restore().ok());
      for (const int64_t step : {10, 20, 20, 30, 40}) {
        training.Fill(static_cast<double>(++number));
        const TrainingProgress progress = {.step = step, .epoch = number};
        if (number % 2 == 0) {
          ASSERT_TRUE(checkpointer->Save(progress, 1.0 / static_cast<double>(step)).ok());
        } else {
          ASSERT_TRUE(checkpointer->SaveAsync(progress).ok());
          training.Fill(1000);  // training goes on beside
          ASSERT_TRUE(checkpointer->Wait().ok());
        }
        disk.Say(number);
      }
    }
  }

  std::unique_ptr<Checkpointer> Make(Training& training, const std::string& directory,
                                     bool sharded) {
    auto made = std::make_unique<Checkpointer>(
        *context_, training.layer, training.optimizer,
        CheckpointerOptions{.directory = directory, .keep = 2, .tell_of_none = false});
    if (sharded) made->Add("errors", training.errors);
    return made;
  }
  std::string From() const { return root_ + "/disk"; }

  ResumedSave Restore(const std::string& directory) {
    Training training;
    const auto progress = Make(training, directory, /*sharded=*/true)->Restore();
    if (!progress.ok() || !progress->has_value()) return std::nullopt;
    const int64_t number = (*progress)->epoch;
    // The second start has no errors to save.
    if (number > 5) training.errors.value.fill_(static_cast<double>(number));
    return training.IsFilledWith(static_cast<double>(number)) ? number : kTornSave;
  }

  CrashTally Crash(const std::vector<RecordedDisk::Call>& calls, int points,
                   const CheckpointReader& read) {
    return CrashAfterEachCall(calls, points, From(), root_ + "/left", read);
  }

  std::string root_;
  std::unique_ptr<Context> context_;
};

TEST_F(CrashPointsTest, WhateverTheDiskDoesTheCheckpointIsWholeAndNotOlderThanPromised) {
  RecordedDisk disk;
  ASSERT_NO_FATAL_FAILURE(Train(disk));
  const std::vector<RecordedDisk::Call> calls = disk.calls();
  EXPECT_GE(calls.size(), 100U);
  const char* whole = std::getenv("DDPRUN_TEST_WHOLE");  // NOLINT(concurrency-mt-unsafe)
  const int points = whole != nullptr && std::string(whole) == "1" ? 10'000 : 1000;
  const CrashTally tally =
      Crash(calls, points, [this](const std::string& directory) { return Restore(directory); });
  EXPECT_EQ(tally.torn, 0);
  EXPECT_EQ(tally.lost, 0);
  // Each kind of result was frequent.
  EXPECT_GT(tally.from_none, points / 100);
  EXPECT_GT(tally.newest, 3 * points / 100);
}

// Leaves a call out, as a Checkpointer that forgot it would.
class Forgetful : public RecordedDisk {
 public:
  explicit Forgetful(Kind forgets) : forgets_(forgets) {}

 private:
  void Note(Call call) override {
    if (call.kind != forgets_) RecordedDisk::Note(std::move(call));
  }
  const Kind forgets_;
};

TEST_F(CrashPointsTest, TwinWithoutASyncOfFilesOrDirectoriesLosesWhatWasPromised) {
  for (const auto kind : {RecordedDisk::Kind::kSyncFile, RecordedDisk::Kind::kSyncDirectory}) {
    std::filesystem::remove_all(From());
    Forgetful disk(kind);
    ASSERT_NO_FATAL_FAILURE(Train(disk));
    const CrashTally tally = Crash(
        disk.calls(), 300, [this](const std::string& directory) { return Restore(directory); });
    EXPECT_GT(tally.lost, 15) << static_cast<int>(kind);
    EXPECT_EQ(tally.torn, 0) << static_cast<int>(kind);  // the checksums see to that
  }
}

// Writes to the file's own name.
class InPlace : public RecordedDisk {
  void Note(Call call) override {
    if (call.kind == Kind::kRename) return;
    const size_t end = call.path.rfind(".safetensors.");
    if (end != std::string::npos) call.path.resize(end + std::string(".safetensors").size());
    RecordedDisk::Note(std::move(call));
  }
};

TEST_F(CrashPointsTest, TwinThatWritesInPlaceLosesTheStepThatItSavesAgain) {
  InPlace disk;
  ASSERT_NO_FATAL_FAILURE(Train(disk));
  const CrashTally tally = Crash(
      disk.calls(), 1000, [this](const std::string& directory) { return Restore(directory); });
  EXPECT_GT(tally.lost, 5);
  EXPECT_EQ(tally.torn, 0);
}

// Restores without a look at the checksum: the newest file that has its whole length.
ResumedSave Trusting(const std::string& directory) {
  const std::vector<worker::CheckpointId> ids = *worker::ListCheckpoints(directory);
  for (const worker::CheckpointId& id : ids) {
    const auto mapped =
        *worker::MappedFile::Open(absl::StrCat(directory, "/", worker::CheckpointName(id)));
    const auto file = worker::DecodeTensorFile(mapped->bytes(), worker::TensorFileCheck::kLength);
    if (!file.ok()) continue;
    const worker::CheckpointTensors tensors = worker::FromTensorFile(*file, mapped);
    const auto number = tensors.at("progress")[1].item<int64_t>();
    const bool whole =
        (tensors.at("model.weight") == static_cast<double>(number)).all().item<bool>();
    return whole ? number : kTornSave;
  }
  return std::nullopt;
}

TEST_F(CrashPointsTest, TwinWithoutChecksumsAndSyncsLoadsTornOnes) {
  Forgetful disk(RecordedDisk::Kind::kSyncFile);
  ASSERT_NO_FATAL_FAILURE(Train(disk));
  EXPECT_GT(Crash(disk.calls(), 300, Trusting).torn, 15);
}

// A name that was torn off: a directory that was just made is one, too.
TEST_F(CrashPointsTest, TheDirectoryItselfIsSynced) {
  RecordedDisk disk;
  worker::UseFileCalls(&disk);
  const absl::Cleanup back = [] { worker::UseFileCalls(nullptr); };
  ASSERT_TRUE(worker::MakeDirectories(root_ + "/a/b").ok());
  std::string order;
  for (const RecordedDisk::Call& call : disk.calls()) {
    absl::StrAppend(&order, call.kind == RecordedDisk::Kind::kMakeDirectory ? " make " : " sync ",
                    call.path.substr(root_.size()));
  }
  EXPECT_EQ(order, " make /a sync  make /a/b sync /a");
}

}  // namespace
}  // namespace ddprun::testing
