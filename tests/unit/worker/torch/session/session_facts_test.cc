#include "worker/torch/session/start_note.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <stdexcept>

#include "absl/strings/match.h"

namespace ddprun::worker {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

Dataset Rows() { return TensorDataset(torch::arange(6).view({3, 2}), torch::ones({3})); }

TEST(SessionFactsTest, OptionsThatChangeTheTrainingAreFacts) {
  TrainingOptions options;
  options.learning_rate = 0.125;
  options.output_dir = "/mine";
  const std::vector<std::string> facts = OptionFacts(options);
  EXPECT_THAT(facts, Contains("--learning_rate 0.125"));
  EXPECT_THAT(facts, Contains("--in_process_restart unset"));
  EXPECT_THAT(facts, Contains("--sync_batch_norm off"));
  EXPECT_THAT(facts, Contains("checkpoints"));
  EXPECT_THAT(facts, Not(Contains(StartsWith("--output_dir"))));
  EXPECT_THAT(facts, Not(Contains(StartsWith("--threads"))));
  TrainingOptions other = options;
  other.output_dir = "/yours";
  EXPECT_EQ(Fingerprint(OptionFacts(other)), Fingerprint(facts));
  other.checkpoint_every = 7;
  EXPECT_NE(Fingerprint(OptionFacts(other)), Fingerprint(facts));
}

TEST(SessionFactsTest, TheFirstAndTheLastSampleAreFacts) {
  EXPECT_THAT(SampleFacts(Rows()), ElementsAre(StartsWith("sample 0: inputs Long [1, 2] "),
                                               StartsWith("sample 2: inputs Long [1, 2] ")));
  Dataset other = Rows();
  other.load = [load = other.load](const auto& samples, const at::Generator& generator) {
    Batch batch = load(samples, generator);
    batch.targets += samples[0] == 2 ? 1 : 0;
    return batch;
  };
  EXPECT_EQ(SampleFacts(other)[0], SampleFacts(Rows())[0]);
  EXPECT_NE(SampleFacts(other)[1], SampleFacts(Rows())[1]);
}

TEST(SessionFactsTest, NothingIsSaidOfASampleThatIsAnotherEachTimeOrCanNotBeLoaded) {
  Dataset noisy = Rows();
  noisy.load = [](const auto& /*samples*/, const at::Generator& /*generator*/) {
    static int64_t loads = 0;
    return Batch{.inputs = torch::full({1}, ++loads), .targets = {}};
  };
  EXPECT_THAT(SampleFacts(noisy), ElementsAre("sample 0", "sample 2"));
  noisy.load = [](const auto& /*samples*/, const at::Generator& /*generator*/) -> Batch {
    throw std::runtime_error("not yet");
  };
  EXPECT_THAT(SampleFacts(noisy), ElementsAre("sample 0", "sample 2"));
}

// The numbers are drawn as by an augmentation, from torch's own generator.
TEST(SessionFactsTest, WhatIsDrawnFromTorchIsTheSameOnAllRanks) {
  Dataset noisy = Rows();
  noisy.load = [](const auto& /*samples*/, const at::Generator& /*generator*/) {
    return Batch{.inputs = torch::rand({1}), .targets = {}};
  };
  torch::manual_seed(1);
  const std::vector<std::string> facts = SampleFacts(noisy);
  EXPECT_TRUE(absl::StrContains(facts[0], "inputs"));
  torch::manual_seed(2);
  EXPECT_EQ(SampleFacts(noisy), facts);
}

TEST(SessionFactsTest, TheLookDrawsNoNumbersOfTheTraining) {
  Dataset drawing = Rows();
  drawing.load = [load = drawing.load](const auto& samples, const at::Generator& generator) {
    torch::rand({5});
    return load(samples, generator);
  };
  torch::manual_seed(3);
  const torch::Tensor expected = torch::rand({4});
  torch::manual_seed(3);
  EXPECT_TRUE(absl::StrContains(SampleFacts(drawing)[0], "inputs"));
  EXPECT_TRUE(torch::equal(torch::rand({4}), expected));
}

TEST(SessionFactsTest, NoSamplesAreNone) {
  EXPECT_THAT(SampleFacts({.size = 0, .load = nullptr}), IsEmpty());
}

}  // namespace
}  // namespace ddprun::worker
