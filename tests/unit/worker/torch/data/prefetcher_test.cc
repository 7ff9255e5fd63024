#include "ddprun/prefetcher.h"

#include <ATen/ops/full.h>
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <stdexcept>

namespace ddprun {
namespace {

Batch Numbered(int64_t number) { return {.inputs = at::full({1}, number), .targets = {}}; }

class PrefetcherTest : public ::testing::TestWithParam<int64_t> {};

TEST_P(PrefetcherTest, HandsOutAllInOrder) {
  Prefetcher batches(Numbered, 50, GetParam());
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(batches.Next().inputs.item<int64_t>(), i);
}

TEST_P(PrefetcherTest, ThrowsWhatLoadingThrewForItsBatchAlone) {
  const auto load = [](int64_t number) {
    if (number == 1) throw std::runtime_error("damaged");
    return Numbered(number);
  };
  Prefetcher batches(load, 3, GetParam());
  EXPECT_EQ(batches.Next().inputs.item<int64_t>(), 0);
  EXPECT_THROW(batches.Next(), std::runtime_error);
  EXPECT_EQ(batches.Next().inputs.item<int64_t>(), 2);
}

TEST_P(PrefetcherTest, EndsBeforeAllAreTaken) {
  Prefetcher batches(Numbered, 1000000, GetParam());
  EXPECT_EQ(batches.Next().inputs.item<int64_t>(), 0);
}

INSTANTIATE_TEST_SUITE_P(Threads, PrefetcherTest, ::testing::Values(0, 1, 3));

// Two loads that wait for each other end only when they run at once; and nobody has asked for any.
TEST(Prefetcher, LoadsAheadOnAllThreads) {
  std::latch both(2);
  Prefetcher batches(
      [&both](int64_t number) {
        both.arrive_and_wait();
        return Numbered(number);
      },
      2, 2);
  both.wait();
  EXPECT_EQ(batches.Next().inputs.item<int64_t>(), 0);
}

TEST(Prefetcher, LoadsAtMostTwoAThreadAhead) {
  std::atomic<int64_t> begun = 0;
  std::latch four(4);
  Prefetcher batches(
      [&](int64_t number) {
        if (begun++ < 4) four.count_down();
        return Numbered(number);
      },
      100, 2);
  four.wait();
  // A fifth would have to begin before the first was taken.
  EXPECT_EQ(begun, 4);
  for (int64_t i = 0; i < 100; ++i) EXPECT_EQ(batches.Next().inputs.item<int64_t>(), i);
}

// Twin: without threads nothing is loaded before it is asked for.
TEST(Prefetcher, WithoutThreadsLoadsWhenAsked) {
  int loads = 0;
  Prefetcher batches(
      [&loads](int64_t number) {
        ++loads;
        return Numbered(number);
      },
      3, 0);
  EXPECT_EQ(loads, 0);
  batches.Next();
  EXPECT_EQ(loads, 1);
}

}  // namespace
}  // namespace ddprun
