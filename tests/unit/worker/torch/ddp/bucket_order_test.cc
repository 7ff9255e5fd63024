#include "worker/torch/ddp/bucket_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

namespace ddprun::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(CutBucketsTest, EachParameterHasItsPlace) {
  const auto buckets = CutBuckets({4, 2, 3, 0, 1}, {2, 1, 2}, 5);
  ASSERT_TRUE(buckets.ok()) << buckets.status();
  EXPECT_THAT(*buckets, ElementsAre(ElementsAre(4, 2), ElementsAre(3), ElementsAre(0, 1)));
}

// What a file says that was changed by hand mustn't reach the reducer, which trusts it.
TEST(CutBucketsTest, WhatIsNoOrderIsRefused) {
  struct Case {
    std::vector<int64_t> order, counts;
    std::string reason;
  };
  const std::vector<Case> cases = {
      {{0, 1, 1}, {3}, "number 1 isn't one, or comes twice"},
      {{0, 1, 3}, {3}, "number 3 isn't one"},
      {{0, -1, 2}, {3}, "number -1 isn't one"},
      {{0, 1, 2}, {2}, "2 have a place"},
      {{0, 1}, {2}, "2 have a place"},
      {{0, 1, 2}, {2, 2}, "one has 2 of the 1 left"},
      {{0, 1, 2}, {3, 0}, "one has 0 of the 0 left"},
      {{0, 1, 2}, {-1, 3}, "one has -1 of the 3 left"},
      {{}, {}, "0 have a place"},
  };
  for (const Case& one : cases) {
    const auto buckets = CutBuckets(one.order, one.counts, 3);
    EXPECT_EQ(buckets.status().code(), absl::StatusCode::kFailedPrecondition) << one.reason;
    EXPECT_THAT(std::string(buckets.status().message()), HasSubstr(one.reason));
  }
}

}  // namespace
}  // namespace ddprun::worker
