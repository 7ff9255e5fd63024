#include "worker/torch/session/sample_feed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace ddprun::worker {
namespace {

using ::testing::HasSubstr;

Dataset Numbers(int64_t size) {
  return {.size = size,
          .load =
              [](const std::vector<int64_t>& samples, const at::Generator& /*generator*/) {
                return Batch{.inputs = torch::tensor(samples)};
              },
          .shuffle = false};
}

// 10 samples; a rank learns from two passes of two samples a step.
class SampleFeedTest : public ::testing::Test {
 protected:
  std::unique_ptr<SampleFeed> Feed(uint32_t rank, uint32_t world_size, Dataset data = Numbers(10)) {
    auto feed = std::make_unique<SampleFeed>(options_, std::move(data), rank, world_size);
    EXPECT_TRUE(feed->Begin().ok());
    return feed;
  }

  TrainingOptions options_ = {.batch_size = 2, .gradient_accumulation_steps = 2};
};

std::vector<int64_t> SamplesOf(const SampleFeed::Step& step) {
  std::vector<int64_t> samples;
  for (const Pass& pass : step.batch) {
    if (pass.share == 0) continue;
    samples.insert(samples.begin(), pass.batch.samples.begin(), pass.batch.samples.end());
  }
  return samples;
}

TEST_F(SampleFeedTest, RanksShareEachStepAndItsWeightsAreThoseOfSamples) {
  std::vector<int64_t> seen;
  double weights = 0;  // of the last step, which has two samples
  for (const uint32_t rank : {0, 1}) {
    const auto feed = Feed(rank, 2);
    EXPECT_EQ(feed->GlobalBatch(), 8);
    EXPECT_EQ(feed->StepsPerEpoch(), 2);
    for (const size_t passes : {2, 1}) {
      absl::StatusOr<SampleFeed::Step> step = feed->Next();
      ASSERT_TRUE(step.ok());
      EXPECT_EQ(step->batch.size(), passes);
      double share = 0;
      for (const Pass& pass : step->batch) share += pass.share;
      EXPECT_EQ(share, 1);
      if (passes == 1) weights += step->batch.front().weight;
      const std::vector<int64_t> own = SamplesOf(*step);
      EXPECT_TRUE(std::is_sorted(own.begin(), own.end())) << "the next pass is the last one";
      seen.insert(seen.end(), own.begin(), own.end());
      ASSERT_TRUE(feed->Commit(step->share).ok());
    }
    EXPECT_EQ(feed->place().epoch, 1U);
  }
  std::sort(seen.begin(), seen.end());
  std::vector<int64_t> all(10);
  std::iota(all.begin(), all.end(), 0);
  EXPECT_EQ(seen, all);
  EXPECT_EQ(weights, 2) << "one for each rank";
}

TEST_F(SampleFeedTest, AStepIsAsLargeWithOtherRanksIfItIsConstant) {
  const auto constant = Feed(0, 2);
  ASSERT_TRUE(constant->Reform(0, 1).ok());
  EXPECT_EQ(constant->GlobalBatch(), 8);
  EXPECT_EQ(constant->Next()->batch.size(), 4U);
  options_.constant_batch = "worker";
  const auto other = Feed(0, 2);
  ASSERT_TRUE(other->Reform(0, 1).ok());
  EXPECT_EQ(other->GlobalBatch(), 4);
  EXPECT_EQ(other->Next()->batch.size(), 2U);
}

TEST_F(SampleFeedTest, TakesAStepOfAnotherSizeAtTheSamePlace) {
  const auto feed = Feed(0, 1);
  ASSERT_TRUE(feed->Commit(feed->Next()->share).ok());
  EXPECT_FALSE(*feed->TakeGlobalBatch(4));
  EXPECT_TRUE(*feed->TakeGlobalBatch(5));
  EXPECT_EQ(feed->GlobalBatch(), 5);
  EXPECT_EQ(SamplesOf(*feed->Next()), (std::vector<int64_t>{4, 5, 6, 7, 8}));
}

TEST_F(SampleFeedTest, AStateIsAPlaceInTheSameData) {
  const auto feed = Feed(0, 1);
  ASSERT_TRUE(feed->Commit(feed->Next()->share).ok());
  const CheckpointedState::Tensors state = feed->SaveState();
  const auto other = Feed(0, 1);
  ASSERT_TRUE(other->RestoreState(state).ok());
  EXPECT_EQ(other->place(), feed->place());
  EXPECT_EQ(SamplesOf(*other->Next()), (std::vector<int64_t>{4, 5, 6, 7}));
  const absl::Status refused = Feed(0, 1, Numbers(11))->RestoreState(state);
  EXPECT_THAT(refused.message(),
              HasSubstr("the checkpoint is of 10 samples, and Prepare() got 11"));
  EXPECT_THAT(feed->RestoreState({}).message(), HasSubstr("doesn't say where it is"));
}

TEST_F(SampleFeedTest, RefusesABatchInWhichSamplesAreMissing) {
  Dataset data = Numbers(10);
  data.load = [](const std::vector<int64_t>& samples, const at::Generator& /*generator*/) {
    return Batch{.inputs = torch::tensor(samples).slice(0, 1)};
  };
  EXPECT_THAT(Feed(0, 1, data)->Next().status().message(),
              HasSubstr("returned inputs with 1 row for 2 samples (0, 1)"));
}

}  // namespace
}  // namespace ddprun::worker
