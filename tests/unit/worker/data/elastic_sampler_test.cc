#include "ddprun/elastic_sampler.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "ddprun/keyed_permutation.h"
#include "tests/support/trees.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ElasticSampler Sampler(uint64_t size, const ElasticSamplerOptions& options, uint32_t rank = 0,
                       uint32_t world_size = 1) {
  return ElasticSampler::Create(size, options, rank, world_size).value();
}

TEST(ElasticSampler, StepsAreTheSameForAllWorldSizes) {
  const KeyedPermutation order(23, 5, 0);
  for (uint32_t world = 1; world <= 9; ++world) {
    std::vector<int64_t> all;
    std::vector<ElasticSampler> ranks;
    for (uint32_t rank = 0; rank < world; ++rank) {
      ranks.push_back(Sampler(23, {.seed = 5, .global_batch = 6}, rank, world));
    }
    for (int step = 0; step < 4; ++step) {
      double weights = 0;
      for (uint32_t rank = 0; rank < world; ++rank) {
        const StepShare share = ranks[rank].Deal();
        EXPECT_EQ(step == 3 ? 5 : 6, share.global_count);
        EXPECT_EQ(step == 3, share.last_of_epoch);
        EXPECT_EQ(share.indices.size(), ElasticSampler::CountOf(share.global_count, rank, world));
        EXPECT_EQ(share.largest_count, ElasticSampler::CountOf(share.global_count, 0, world));
        weights += share.weight;
        all.insert(all.end(), share.indices.begin(), share.indices.end());
      }
      EXPECT_NEAR(world, weights, 1e-12);
    }
    ASSERT_EQ(23, all.size());
    for (size_t place = 0; place < all.size(); ++place) EXPECT_EQ(order.At(place), all[place]);
  }
}

// deals.txt, which Python's sampler makes: the two are one.
TEST(ElasticSampler, DealsAreThoseOfTheFile) {
  std::ifstream file(InSourceTree("tests/unit/worker/data/deals.txt"));
  int checked = 0;
  for (std::string line; std::getline(file, line);) {
    if (line[0] == '#') continue;
    const std::vector<std::string> halves = absl::StrSplit(line, ": ");
    std::vector<uint64_t> job;
    for (const auto word : absl::StrSplit(halves.at(0), ' ')) {
      ASSERT_TRUE(absl::SimpleAtoi(word, &job.emplace_back())) << line;
    }
    ASSERT_EQ(9, job.size()) << line;
    ElasticSampler sampler = Sampler(
        job[0],
        {.seed = job[1], .shuffle = job[4] == 1, .global_batch = job[2], .batch_per_rank = job[3]},
        static_cast<uint32_t>(job[5]), static_cast<uint32_t>(job[6]));
    SamplerState state = sampler.state();
    state.epoch = job[7];
    state.consumed = job[8];
    ASSERT_TRUE(sampler.Restore(state).ok());
    std::vector<std::string> steps;
    for (int step = 0; step < 2; ++step) {
      const StepShare share = sampler.Deal();
      std::vector<std::string> words = {absl::StrCat(share.global_count)};
      for (const int64_t index : share.indices) words.push_back(absl::StrCat(index));
      steps.push_back(absl::StrJoin(words, " "));
    }
    EXPECT_EQ(halves.at(1), absl::StrJoin(steps, " | ")) << line;
    ++checked;
  }
  EXPECT_EQ(25, checked);
}

TEST(ElasticSampler, LastStepIsDealtWithoutRepeats) {
  std::vector<std::vector<int64_t>> last;
  for (uint32_t rank = 0; rank < 4; ++rank) {
    ElasticSampler sampler = Sampler(10, {.shuffle = false, .batch_per_rank = 2}, rank, 4);
    sampler.Deal();
    const StepShare share = sampler.Deal();
    last.push_back(share.indices);
    EXPECT_EQ(rank < 2 ? 2.0 : 0.0, share.weight);
  }
  EXPECT_THAT(last, ElementsAre(ElementsAre(8), ElementsAre(9), IsEmpty(), IsEmpty()));
}

TEST(ElasticSampler, OnlyCommittedStepsCount) {
  ElasticSampler sampler = Sampler(10, {.shuffle = false, .global_batch = 4});
  const StepShare first = sampler.Deal();
  const StepShare second = sampler.Deal();
  sampler.Deal();
  EXPECT_EQ(1, sampler.Deal().epoch);
  EXPECT_EQ(0, sampler.state().consumed);
  ASSERT_TRUE(sampler.Commit(first).ok());
  EXPECT_EQ(4, sampler.state().consumed);
  ASSERT_TRUE(sampler.Reform(1, 2).ok());
  EXPECT_THAT(sampler.Deal().indices, ElementsAre(6, 7));
  EXPECT_THAT(std::string(sampler.Commit(second).message()), HasSubstr("dealt before"));
  EXPECT_EQ(4, sampler.state().consumed);
}

TEST(ElasticSampler, StepsAreCommittedOnceInOrder) {
  ElasticSampler sampler = Sampler(10, {.global_batch = 4});
  const StepShare first = sampler.Deal();
  const StepShare second = sampler.Deal();
  const absl::Status early = sampler.Commit(second);
  EXPECT_EQ(absl::StatusCode::kFailedPrecondition, early.code());
  EXPECT_THAT(std::string(early.message()), HasSubstr("the next one is that at sample 0"));
  EXPECT_TRUE(sampler.Commit(first).ok());
  EXPECT_FALSE(sampler.Commit(first).ok());
  EXPECT_TRUE(sampler.Commit(second).ok());
  EXPECT_TRUE(sampler.Commit(sampler.Deal()).ok());
  EXPECT_EQ(1, sampler.state().epoch);
  EXPECT_EQ(0, sampler.state().consumed);
}

TEST(ElasticSampler, RefusesWhatCannotBe) {
  const auto why = [](uint64_t size, const ElasticSamplerOptions& options, uint32_t rank,
                      uint32_t world) {
    return std::string(ElasticSampler::Create(size, options, rank, world).status().message());
  };
  EXPECT_THAT(why(0, {.global_batch = 1}, 0, 1), HasSubstr("dataset_size is 0"));
  EXPECT_THAT(why(9, {}, 0, 1), HasSubstr("either global_batch or batch_per_rank"));
  EXPECT_THAT(why(9, {.global_batch = 1, .batch_per_rank = 2}, 0, 1), HasSubstr("either"));
  EXPECT_THAT(why(9, {.global_batch = uint64_t{1} << 31}, 0, 1), HasSubstr("2147483648"));
  EXPECT_THAT(why(9, {.global_batch = 1}, 2, 2), HasSubstr("rank is 2"));
  EXPECT_THAT(why(9, {.global_batch = 1}, 0, 0), HasSubstr("world size, 0"));
  ElasticSampler sampler = Sampler(9, {.global_batch = 1});
  EXPECT_FALSE(sampler.Reform(3, 3).ok());
  EXPECT_EQ(1, sampler.world_size());
}

TEST(ElasticSampler, RestoresOnlyWhatFits) {
  ElasticSampler sampler = Sampler(9, {.seed = 1, .global_batch = 4});
  const SamplerState good{.dataset_size = 9, .seed = 7, .epoch = 2, .consumed = 4};
  ASSERT_TRUE(sampler.Restore(good).ok());
  EXPECT_EQ(good, sampler.state());
  EXPECT_EQ(KeyedPermutation(9, 7, 2).At(4), sampler.Deal().indices[0]);
  SamplerState other = good;
  other.dataset_size = 10;
  EXPECT_THAT(std::string(sampler.Restore(other).message()),
              HasSubstr("of 10 samples, and this one has 9"));
  other = good;
  other.shuffle = false;
  EXPECT_THAT(std::string(sampler.Restore(other).message()), HasSubstr("shuffle off"));
  other = good;
  other.consumed = 9;
  EXPECT_THAT(std::string(sampler.Restore(other).message()), HasSubstr("consumed 9 of the 9"));
  EXPECT_EQ(good, sampler.state());
}

TEST(SamplerState, IsALineOfText) {
  const SamplerState state{
      .dataset_size = 1000, .seed = ~uint64_t{0}, .shuffle = false, .epoch = 3, .consumed = 512};
  const std::string text = state.Serialize();
  EXPECT_EQ(
      "ddprun-sampler 1 dataset_size=1000 seed=18446744073709551615 shuffle=0 epoch=3 consumed=512",
      text);
  EXPECT_EQ(state, SamplerState::Parse(text).value());
}

TEST(SamplerState, RefusesOtherTexts) {
  const auto why = [](absl::string_view text) {
    const auto state = SamplerState::Parse(text);
    EXPECT_EQ(absl::StatusCode::kInvalidArgument, state.status().code()) << text;
    return std::string(state.status().message());
  };
  EXPECT_THAT(why("ddprun-sampler 2 dataset_size=9"), HasSubstr("of version '2'"));
  EXPECT_THAT(why("ddprun-sampler 1 dataset_size=9 seed=0 shuffle=1 epoch=0 consumed=9"),
              HasSubstr("consumed 9 of the 9"));
  EXPECT_THAT(
      why("ddprun-sampler 1 dataset_size=9 seed=0 shuffle=1 epoch=4611686018427387905 consumed=0"),
      HasSubstr("in epoch 4611686018427387905"));
  for (const char* text : {"", "x", "ddprun-sampler", "ddprun-sampler 1",
                           "ddprun-sampler 1 dataset_size=9 seed=0 shuffle=2 epoch=0 consumed=0",
                           "ddprun-sampler 1 dataset_size=9 seed=0 shuffle=1 epoch=0 consumed=+1",
                           "ddprun-sampler 1 dataset_size=9 seed=0 shuffle=1 epoch=0 consumed=01",
                           "ddprun-sampler 1 dataset_size=9 seed=0 shuffle=1 epoch=0 consumed=1 ",
                           "ddprun-sampler 1 dataset_size=9 seed=0 shuffle=1 consumed=1 epoch=0"}) {
    EXPECT_THAT(why(text), HasSubstr("no state of a sampler"));
  }
}

}  // namespace
}  // namespace ddprun
