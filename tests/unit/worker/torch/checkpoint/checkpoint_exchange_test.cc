#include "worker/torch/checkpoint/checkpoint_exchange.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

namespace ddprun::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(ShareChecksumsTest, Rank0HasThoseOfAll) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_THAT(ShareChecksums(*store, 0, 1, 2, 11U), IsEmpty());
  EXPECT_THAT(ShareChecksums(*store, 0, 0, 2, 10U), ElementsAre(10, 11));
  // The next one has keys of its own, and what failed is no checkpoint.
  EXPECT_THAT(ShareChecksums(*store, 1, 1, 2, absl::DataLossError("full")), IsEmpty());
  EXPECT_THAT(ShareChecksums(*store, 1, 0, 2, 10U), IsEmpty());
}

// 300 s of the store ended the checkpoint of a rank that wrote 100 GB.
TEST(ShareChecksumsTest, ADiskMayTakeLongerThanTheStoreWaits) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  store->setTimeout(std::chrono::milliseconds(20));
  auto rank_0 = std::async(std::launch::async, [&] {
    return ShareChecksums(*store, /*number=*/0, /*rank=*/0, /*world_size=*/2, 10U);
  });
  // Longer than the store would have let it wait.
  EXPECT_ANY_THROW(store->wait({"nobody sets it"}, std::chrono::milliseconds(100)));
  ShareChecksums(*store, 0, 1, 2, 11U);
  EXPECT_THAT(rank_0.get(), ElementsAre(10, 11));
}

}  // namespace
}  // namespace ddprun::worker
