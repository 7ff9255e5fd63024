#include "worker/torch/store/meeting.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace ddprun::worker {
namespace {

using StorePointer = c10::intrusive_ptr<c10d::Store>;

TEST(MeetingTest, RanksSayWhereTheyAre) {
  const StorePointer store = c10::make_intrusive<c10d::HashStore>();
  store->set("here/1", std::string("7\ngloo\n"));
  const auto ranks = MeetPeers(*store, 0, 2, {.host = 3, .backend = "gloo"}, absl::Seconds(1));
  ASSERT_TRUE(ranks.ok()) << ranks.status();
  EXPECT_EQ((*ranks)[0].host, 3U);
  EXPECT_EQ((*ranks)[1].host, 7U);
}

TEST(MeetingTest, AProblemEndsTheWaitForRanksAfterIt) {
  const StorePointer store = c10::make_intrusive<c10d::HashStore>();
  NotifyProblem(*store, 1, "no GPU");
  EXPECT_EQ(MeetPeers(*store, 0, 3, {.backend = "nccl"}, absl::Seconds(100)).status(),
            absl::UnavailableError("PeerError: rank 1 can't take part: no GPU"));
}

TEST(MeetingTest, AnotherVersionsWordsAreAProblem) {
  const StorePointer store = c10::make_intrusive<c10d::HashStore>();
  store->set("here/1", std::string("0"));
  EXPECT_EQ(MeetPeers(*store, 0, 2, {.backend = "gloo"}, absl::Seconds(100)).status(),
            absl::UnavailableError(
                "PeerError: rank 1 can't take part: it runs another version of ddprun"));
}

TEST(MeetingTest, DifferentBackendsAreListedWithTheirRanks) {
  EXPECT_EQ(CompareBackends({{.backend = "gloo"}, {.backend = "shm"}, {.backend = "gloo"}}),
            absl::InvalidArgumentError(
                "the backend differs between the ranks: 'gloo' on ranks 0, 2, 'shm' on rank 1; "
                "name the same one for all, in the program or in DDPRUN_BACKEND"));
  EXPECT_TRUE(CompareBackends({{.backend = "shm"}, {.backend = "shm"}}).ok());
}

}  // namespace
}  // namespace ddprun::worker
