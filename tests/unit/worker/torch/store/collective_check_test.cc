#include "worker/torch/store/collective_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

#include "worker/torch/store/meeting.h"

namespace ddprun::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

TEST(JudgeOperationsTest, EqualTextsAreRight) {
  EXPECT_EQ(JudgeOperations({"barrier", "barrier", "barrier"}), "");
  EXPECT_EQ(JudgeOperations({"barrier"}), "");
}

TEST(JudgeOperationsTest, RanksAreGroupedByWhatTheyDo) {
  EXPECT_EQ(
      JudgeOperations({"barrier", "reduce", "barrier", "reduce", "sum"}),
      "the ranks don't do the same: ranks 0, 2 are at barrier; ranks 1, 3 are at reduce; rank "
      "4 is at sum; all ranks must take the same steps and call the same collectives in the "
      "same order");
}

// Runs a function as every rank of a world at once; the results by rank.
template <typename Function>
std::vector<absl::Status> OnAllRanks(uint32_t world_size, const Function& function) {
  std::vector<std::future<absl::Status>> running;
  for (uint32_t rank = 0; rank < world_size; ++rank) {
    running.push_back(std::async(std::launch::async, function, rank));
  }
  std::vector<absl::Status> results;
  for (auto& one : running) results.push_back(one.get());
  return results;
}

TEST(CollectiveCheckTest, ManyEqualOperationsLeaveOneKeyAndTheFirstOtherOneIsFound) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto results = OnAllRanks(3, [&](uint32_t rank) {
    CollectiveCheck check(store, rank, 3, absl::Seconds(10));
    for (int i = 0; i < 50; ++i) {
      const absl::Status status = check.Compare("same");
      if (!status.ok()) return absl::InternalError(std::string(status.message()));
    }
    check.SetActivity("step 51");
    return check.Compare(rank == 2 ? "sum" : "barrier");
  });
  for (const absl::Status& status : results) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("ranks 0, 1 are at barrier (step 51); rank 2 is at sum (step 51)"));
  }
  EXPECT_LE(store->getNumKeys(), 6);  // what is left of the last two operations
}

TEST(CollectiveCheckTest, ARankThatEndsIsAPeersErrorToTheOthersAndItsOwnWhenAllEndIsNone) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto results = OnAllRanks(2, [&](uint32_t rank) {
    CollectiveCheck check(store, rank, 2, absl::Seconds(10));
    if (rank == 0) return check.Compare("barrier");
    check.AnnounceEnd();
    return check.CompareEnd();
  });
  EXPECT_THAT(std::string(results[0].message()),
              StartsWith("PeerError: the ranks don't do the same"));
  EXPECT_EQ(results[1].code(), absl::StatusCode::kFailedPrecondition);

  const auto fresh = c10::make_intrusive<c10d::HashStore>();
  for (const absl::Status& status : OnAllRanks(2, [&](uint32_t rank) {
         CollectiveCheck check(fresh, rank, 2, absl::Seconds(10));
         check.AnnounceEnd();
         return check.CompareEnd();
       })) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

std::vector<absl::Status> Compare(const std::vector<std::vector<std::string>>& models) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto world_size = static_cast<uint32_t>(models.size());
  return OnAllRanks(world_size, [&](uint32_t rank) {
    return CompareModels(*store,
                         {.rank = rank, .world_size = world_size, .timeout = absl::Seconds(10)},
                         models[rank]);
  });
}

TEST(CompareModelsTest, EqualModelsAreRight) {
  for (const absl::Status& status : Compare({{"a", "b"}, {"a", "b"}, {"a", "b"}})) {
    EXPECT_TRUE(status.ok()) << status;
  }
}

TEST(CompareModelsTest, TheFirstDifferenceIsNamedOnEveryRank) {
  for (const absl::Status& status : Compare({{"a", "b", "c"}, {"a", "b", "c"}, {"a", "x", "y"}})) {
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("differs between the ranks: 'b' on rank 0 and 'x' on rank 2;"));
  }
  for (const absl::Status& status : Compare({{"a", "b"}, {"a"}})) {
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("ranks: 'b' on rank 0 and nothing in its place on rank 1;"));
  }
}

}  // namespace
}  // namespace ddprun::worker
