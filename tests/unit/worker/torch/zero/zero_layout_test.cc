#include "worker/torch/zero/zero_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "base/rng.h"

namespace ddprun::worker {
namespace {

std::vector<ZeroParameterSize> Floats(const std::vector<int64_t>& elements) {
  std::vector<ZeroParameterSize> sizes;
  for (const int64_t count : elements) {
    sizes.push_back({.elements = count, .element_bytes = 4, .type = 0});
  }
  return sizes;
}

TEST(ZeroLayoutTest, TheLastParametersFillTheFirstBucket) {
  const auto buckets = LayOutZeroBuckets(Floats({100, 10, 200, 20}),
                                         {.bucket_bytes = 400, .first_bucket_bytes = 400}, 2);
  ASSERT_EQ(buckets.size(), 2U);
  ASSERT_EQ(buckets[0].slots.size(), 2U);
  EXPECT_EQ(buckets[0].slots[0].parameter, 3U);
  EXPECT_EQ(buckets[0].slots[1].parameter, 2U);
  EXPECT_EQ(buckets[0].slots[1].begin, 20);
  EXPECT_EQ(buckets[0].length, 220);
  EXPECT_EQ(buckets[0].share, 112);  // 110, rounded up to a multiple of 16
  EXPECT_EQ(buckets[1].length, 110);
}

TEST(ZeroLayoutTest, TheFirstBucketMayBeSmaller) {
  const auto buckets =
      LayOutZeroBuckets(Floats({10, 10, 10}), {.bucket_bytes = 1000, .first_bucket_bytes = 40}, 1);
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].slots.size(), 1U);
  EXPECT_EQ(buckets[1].slots.size(), 2U);
}

TEST(ZeroLayoutTest, TypesDoNotMix) {
  std::vector<ZeroParameterSize> sizes = Floats({10, 10, 10, 10});
  sizes[1] = {.elements = 10, .element_bytes = 2, .type = 5};
  sizes[3] = sizes[1];
  const auto buckets =
      LayOutZeroBuckets(sizes, {.bucket_bytes = 1000, .first_bucket_bytes = 1000}, 2);
  ASSERT_EQ(buckets.size(), 2U);
  for (const ZeroBucketLayout& bucket : buckets) {
    ASSERT_EQ(bucket.slots.size(), 2U);
    EXPECT_EQ(sizes[bucket.slots[0].parameter].type, sizes[bucket.slots[1].parameter].type);
  }
}

TEST(ZeroLayoutTest, APieceMayBeginInTheMiddleOfAParameter) {
  const auto buckets =
      LayOutZeroBuckets(Floats({64}), {.bucket_bytes = 1, .first_bucket_bytes = 1}, 2);
  const std::vector<ZeroPiece> second = ZeroPiecesOf(buckets, 1);
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].begin, 32);
  EXPECT_EQ(second[0].length, 32);
  EXPECT_EQ(second[0].share_begin, 0);
}

// Whatever the sizes: every element has exactly one owner, and shares are of even size.
TEST(ZeroLayoutTest, AllRanksTogetherHaveEveryElementOnce) {
  Rng rng(7);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<int64_t> elements(1 + rng.Next() % 12);
    for (int64_t& count : elements) count = 1 + static_cast<int64_t>(rng.Next() % 300);
    const uint32_t world_size = 1 + static_cast<uint32_t>(rng.Next() % 7);
    const auto limit = static_cast<int64_t>(1 + rng.Next() % 2000);
    const auto buckets = LayOutZeroBuckets(
        Floats(elements), {.bucket_bytes = limit, .first_bucket_bytes = limit / 2}, world_size);
    std::vector<std::vector<int>> owners;
    for (const int64_t count : elements) owners.emplace_back(count, 0);
    for (uint32_t rank = 0; rank < world_size; ++rank) {
      for (const ZeroPiece& piece : ZeroPiecesOf(buckets, rank)) {
        EXPECT_LE(piece.share_begin + piece.length, buckets[piece.bucket].share);
        auto& owned = owners[piece.parameter];
        std::for_each_n(owned.begin() + piece.begin, piece.length, [](int& count) { ++count; });
      }
    }
    for (const std::vector<int>& owned : owners) {
      EXPECT_TRUE(std::all_of(owned.begin(), owned.end(), [](int n) { return n == 1; }));
    }
    for (const ZeroBucketLayout& bucket : buckets) {
      EXPECT_EQ(bucket.share % kZeroShareElements, 0);
      EXPECT_GE(bucket.share * world_size, bucket.length);
      EXPECT_LT(bucket.share * world_size, bucket.length + world_size * (kZeroShareElements + 1));
    }
  }
}

std::vector<size_t> ParametersOf(const ZeroBucketLayout& bucket) {
  std::vector<size_t> parameters;
  for (const ZeroSlot& slot : bucket.slots) parameters.push_back(slot.parameter);
  return parameters;
}

TEST(ZeroBlocksTest, ABucketHoldsAsManyWholeBlocksAsFit) {
  // Blocks of 120, 120, 400 and 40 bytes.
  const auto buckets = LayOutZeroBlocks(Floats({10, 20, 10, 20, 60, 40, 10}), {0, 0, 1, 1, 2, 2, 3},
                                        /*bucket_bytes=*/240, 2);
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(ParametersOf(buckets[0]), std::vector<size_t>({6}));
  EXPECT_EQ(ParametersOf(buckets[1]), std::vector<size_t>({5, 4}));  // too large, so alone
  EXPECT_EQ(ParametersOf(buckets[2]), std::vector<size_t>({3, 2, 1, 0}));
  EXPECT_EQ(buckets[2].length, 60);
  EXPECT_EQ(buckets[2].share, 32);  // 30, rounded up to a multiple of 16
}

TEST(ZeroBlocksTest, TypesOfABlockAreInBucketsOfTheirOwn) {
  std::vector<ZeroParameterSize> sizes = Floats({10, 10, 10, 10});
  sizes[1] = {.elements = 10, .element_bytes = 2, .type = 5};
  sizes[2] = sizes[1];
  const auto buckets = LayOutZeroBlocks(sizes, {0, 0, 1, 1}, /*bucket_bytes=*/40, 2);
  ASSERT_EQ(buckets.size(), 3U);
  EXPECT_EQ(ParametersOf(buckets[0]), std::vector<size_t>({3}));
  EXPECT_EQ(ParametersOf(buckets[1]), std::vector<size_t>({0}));
  EXPECT_EQ(ParametersOf(buckets[2]), std::vector<size_t>({2, 1}));
}

}  // namespace
}  // namespace ddprun::worker
