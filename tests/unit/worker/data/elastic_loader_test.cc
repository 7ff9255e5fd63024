#include "ddprun/elastic_loader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddprun/keyed_permutation.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A batch that can't be copied: its samples, doubled.
using Batch = std::unique_ptr<std::vector<int64_t>>;
using Loader = ElasticLoader<Batch>;

ElasticSampler SamplerOf(uint64_t size, uint64_t batch, uint32_t rank = 0, uint32_t world = 1) {
  return ElasticSampler::Create(size, {.seed = 4, .global_batch = batch}, rank, world).value();
}

absl::StatusOr<Batch> Double(const StepShare& share) {
  auto batch = std::make_unique<std::vector<int64_t>>();
  for (const int64_t index : share.indices) batch->push_back(2 * index);
  return batch;
}

// Loads that wait until they are let go.
class Gate {
 public:
  absl::StatusOr<Batch> Load(const StepShare& share) {
    std::unique_lock<std::mutex> lock(mutex_);
    ++begun_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
    return Double(share);
  }
  void WaitForBegun(int count) {
    std::unique_lock<std::mutex> lock(mutex_);
    changed_.wait(lock, [this, count] { return begun_ >= count; });
  }
  void Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  int begun() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return begun_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int begun_ = 0;
};

TEST(ElasticLoader, HandsOutStepsInOrderWithAnyNumberOfThreads) {
  for (const uint32_t threads : {0U, 1U, 2U, 7U}) {
    ElasticSampler expected = SamplerOf(50, 8);
    Loader loader(SamplerOf(50, 8), Double, {.threads = threads});
    for (int step = 0; step < 40; ++step) {
      const StepShare share = expected.Deal();
      const absl::StatusOr<Loader::Step> got = loader.Next();
      ASSERT_TRUE(got.ok());
      EXPECT_EQ(share.indices, got->share.indices);
      ASSERT_EQ(share.indices.size(), got->batch->size());
      for (size_t i = 0; i < share.indices.size(); ++i) {
        EXPECT_EQ(2 * share.indices[i], (*got->batch)[i]);
      }
      ASSERT_TRUE(loader.Commit(got->share).ok());
      ASSERT_TRUE(expected.Commit(share).ok());
      EXPECT_EQ(expected.state(), loader.state());
    }
  }
}

TEST(ElasticLoader, WhatIsReadAheadIsNotConsumed) {
  Gate gate;
  Loader loader(SamplerOf(50, 8), [&gate](const StepShare& share) { return gate.Load(share); },
                {.threads = 3, .ahead = 3});
  gate.WaitForBegun(3);
  EXPECT_EQ(0, loader.state().consumed);
  gate.Open();
  const absl::StatusOr<Loader::Step> step = loader.Next();
  ASSERT_TRUE(step.ok());
  gate.WaitForBegun(4);  // its place is free
  EXPECT_EQ(0, loader.state().consumed);
  ASSERT_TRUE(loader.Commit(step->share).ok());
  EXPECT_EQ(8, loader.state().consumed);
}

TEST(ElasticLoader, ReadsNoFurtherAheadThanTold) {
  constexpr int kAhead = 3;
  int handed_out = 0;
  std::mutex mutex;
  int begun = 0;
  int furthest = 0;
  Loader loader(SamplerOf(1000, 1),
                [&](const StepShare& share) {
                  const std::lock_guard<std::mutex> lock(mutex);
                  furthest = std::max(furthest, ++begun - handed_out);
                  return Double(share);
                },
                {.threads = 6, .ahead = kAhead});
  for (int step = 0; step < 500; ++step) {
    {
      const std::lock_guard<std::mutex> lock(mutex);
      ++handed_out;  // at the latest now its place is free
    }
    ASSERT_TRUE(loader.Next().ok());
  }
  const std::lock_guard<std::mutex> lock(mutex);
  EXPECT_LE(furthest, kAhead);
}

TEST(ElasticLoader, AReformDealsAnewWhatWasReadAhead) {
  Gate gate;
  Loader loader(SamplerOf(50, 8), [&gate](const StepShare& share) { return gate.Load(share); },
                {.threads = 2, .ahead = 4});
  gate.WaitForBegun(2);  // loads that are under way don't come back as the new ranks' steps
  ASSERT_TRUE(loader.Reform(1, 2).ok());
  gate.Open();
  const absl::StatusOr<Loader::Step> step = loader.Next();
  ASSERT_TRUE(step.ok());
  const KeyedPermutation order(50, 4, 0);
  EXPECT_THAT(step->share.indices, ElementsAre(order.At(4), order.At(5), order.At(6), order.At(7)));
  EXPECT_EQ(2 * step->share.indices[3], (*step->batch)[3]);
  ASSERT_TRUE(loader.Reform(0, 3).ok());
  EXPECT_THAT(std::string(loader.Commit(step->share).message()), HasSubstr("dealt before"));
  EXPECT_FALSE(loader.Reform(3, 3).ok());
}

// World sizes that walk, each rank with threads that read ahead.
TEST(ElasticLoader, EachSampleOnceAnEpochWhateverBecomesOfTheRanks) {
  constexpr uint64_t kSize = 101;
  std::multiset<int64_t> learned;
  std::vector<std::unique_ptr<Loader>> ranks;
  for (uint32_t world : {3U, 1U, 4U, 2U, 6U, 5U, 3U, 2U}) {
    const SamplerState state = ranks.empty() ? SamplerOf(kSize, 5).state() : ranks[0]->state();
    ranks.resize(std::min<size_t>(ranks.size(), world));
    for (uint32_t rank = 0; rank < ranks.size(); ++rank) {
      ASSERT_TRUE(ranks[rank]->Reform(rank, world).ok());
    }
    for (auto rank = static_cast<uint32_t>(ranks.size()); rank < world; ++rank) {
      ranks.push_back(std::make_unique<Loader>(SamplerOf(kSize, 5, rank, world), Double,
                                               ElasticLoaderOptions{.threads = 2}));
      ASSERT_TRUE(ranks.back()->Restore(state).ok());
    }
    for (uint64_t step = 0; step < world + 1 && ranks[0]->state().epoch == 0; ++step) {
      for (const auto& rank : ranks) {
        const absl::StatusOr<Loader::Step> got = rank->Next();
        ASSERT_TRUE(got.ok());
        for (const int64_t doubled : *got->batch) learned.insert(doubled / 2);
        ASSERT_TRUE(rank->Commit(got->share).ok());
      }
    }
  }
  EXPECT_EQ(1, ranks[0]->state().epoch);
  EXPECT_EQ(kSize, learned.size());
  EXPECT_EQ(kSize, std::set<int64_t>(learned.begin(), learned.end()).size());
}

TEST(ElasticLoader, AShareThatCannotBeLoadedIsNotSkipped) {
  for (const uint32_t threads : {0U, 2U}) {
    std::mutex mutex;
    bool broken = true;
    Loader loader(SamplerOf(50, 8),
                  [&](const StepShare& share) -> absl::StatusOr<Batch> {
                    const std::lock_guard<std::mutex> lock(mutex);
                    if (broken && share.first == 8) return absl::NotFoundError("no file 7.jpg");
                    if (broken && share.first == 16) throw std::runtime_error("a library's");
                    return Double(share);
                  },
                  {.threads = threads});
    const absl::StatusOr<Loader::Step> first = loader.Next();
    ASSERT_TRUE(first.ok());
    ASSERT_TRUE(loader.Commit(first->share).ok());
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(absl::NotFoundError("no file 7.jpg"), loader.Next().status());
    SamplerState state = loader.state();
    state.consumed = 16;
    ASSERT_TRUE(loader.Restore(state).ok());
    EXPECT_THAT(std::string(loader.Next().status().message()),
                HasSubstr("step at 16 of epoch 0 could not be loaded: a library's"));
    {
      const std::lock_guard<std::mutex> lock(mutex);
      broken = false;
    }
    state.consumed = 8;
    ASSERT_TRUE(loader.Restore(state).ok());
    const absl::StatusOr<Loader::Step> step = loader.Next();
    ASSERT_TRUE(step.ok());
    EXPECT_EQ(8, step->share.first);
  }
}

TEST(ElasticLoader, EndsWithItsQueueFull) {
  Gate gate;
  {
    Loader loader(SamplerOf(50, 8), [&gate](const StepShare& share) { return gate.Load(share); },
                  {.threads = 3, .ahead = 8});
    gate.WaitForBegun(3);
    gate.Open();
  }
  EXPECT_LE(gate.begun(), 8);
}

}  // namespace
}  // namespace ddprun
