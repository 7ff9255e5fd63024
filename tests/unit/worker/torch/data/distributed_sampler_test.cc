#include "ddprun/distributed_sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <vector>

#include "base/rng.h"

namespace ddprun {
namespace {

// How often each sample is dealt over all ranks.
std::map<int64_t, int> Deal(uint64_t size, uint32_t world, const DistributedSamplerOptions& options,
                            uint64_t epoch) {
  std::map<int64_t, int> dealt;
  for (uint32_t rank = 0; rank < world; ++rank) {
    DistributedSampler sampler(size, rank, world, options);
    sampler.SetEpoch(epoch);
    const std::vector<int64_t> indices = sampler.Indices();
    EXPECT_EQ(indices.size(), sampler.samples_per_rank());
    for (const int64_t index : indices) ++dealt[index];
  }
  return dealt;
}

TEST(DistributedSamplerTest, PaddedEverySampleIsDealtOnceAndTheRestTwice) {
  Rng rng(1);
  for (int round = 0; round < 200; ++round) {
    const uint64_t size = 1 + rng.Below(300);
    const uint32_t world = static_cast<uint32_t>(1 + rng.Below(9));
    const std::map<int64_t, int> dealt = Deal(size, world, {.seed = rng.Next()}, rng.Below(100));
    ASSERT_EQ(dealt.size(), size) << "world " << world;
    EXPECT_EQ(dealt.begin()->first, 0);
    EXPECT_EQ(dealt.rbegin()->first, static_cast<int64_t>(size) - 1);
    uint64_t extra = 0;
    for (const auto& [index, count] : dealt) extra += static_cast<uint64_t>(count - 1);
    EXPECT_EQ(extra, (world - size % world) % world) << "size " << size << " world " << world;
  }
}

TEST(DistributedSamplerTest, DroppingDealsNoneTwice) {
  Rng rng(2);
  for (int round = 0; round < 200; ++round) {
    const uint64_t size = rng.Below(300);
    const uint32_t world = static_cast<uint32_t>(1 + rng.Below(9));
    const std::map<int64_t, int> dealt =
        Deal(size, world, {.seed = rng.Next(), .drop_last = true}, rng.Below(100));
    EXPECT_EQ(dealt.size(), size - size % world);
    for (const auto& [index, count] : dealt) EXPECT_EQ(count, 1);
  }
}

TEST(DistributedSamplerTest, SeedAndEpochAloneDetermineTheOrder) {
  const auto order = [](uint64_t seed, uint64_t epoch) {
    DistributedSampler sampler(1000, 0, 1, {.seed = seed});
    sampler.SetEpoch(epoch);
    return sampler.Indices();
  };
  EXPECT_EQ(order(7, 3), order(7, 3));
  EXPECT_NE(order(7, 3), order(7, 4));
  EXPECT_NE(order(7, 3), order(8, 3));
  EXPECT_NE(order(3, 7), order(7, 3));
}

// The order is part of what a resumed job relies on: it may not change between versions.
TEST(DistributedSamplerTest, TheOrderStaysWhatItWas) {
  DistributedSampler sampler(8, 0, 1, {.seed = 1});
  sampler.SetEpoch(2);
  EXPECT_EQ(sampler.Indices(), (std::vector<int64_t>{1, 2, 7, 4, 5, 6, 3, 0}));
}

TEST(DistributedSamplerTest, WithoutShuffleItDealsInOrder) {
  const DistributedSampler sampler(7, 1, 3, {.shuffle = false});
  EXPECT_EQ(sampler.Indices(), (std::vector<int64_t>{1, 4, 0}));
}

TEST(DistributedSamplerTest, AGlobalBatchIsTheSameAtEveryWorldSize) {
  const auto global_batch = [](uint32_t world, size_t number) {
    std::vector<int64_t> samples;
    for (uint32_t rank = 0; rank < world; ++rank) {
      const std::vector<int64_t> indices =
          DistributedSampler(1200, rank, world, {.seed = 5}).Indices();
      const size_t each = 24 / world;
      samples.insert(samples.end(), indices.begin() + static_cast<int64_t>(number * each),
                     indices.begin() + static_cast<int64_t>((number + 1) * each));
    }
    std::sort(samples.begin(), samples.end());
    return samples;
  };
  for (const uint32_t world : {2U, 3U, 4U, 6U})
    EXPECT_EQ(global_batch(world, 9), global_batch(1, 9));
}

TEST(DistributedSamplerTest, AnEmptySetDealsNothing) {
  EXPECT_TRUE(DistributedSampler(0, 0, 2).Indices().empty());
}

}  // namespace
}  // namespace ddprun
