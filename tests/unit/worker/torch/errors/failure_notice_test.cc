#include "worker/torch/errors/failure_notice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <string>
#include <torch/csrc/distributed/c10d/HashStore.hpp>
#include <vector>

namespace ddprun::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::StartsWith;

// Each test has the notices of a process for itself.
class FailureNoticeTest : public ::testing::Test {
 protected:
  void TearDown() override { LeaveStores(absl::OkStatus()); }
};

// Notes what it is asked to wait for, and doesn't wait long.
class WaitedStore : public c10d::HashStore {
 public:
  void wait(const std::vector<std::string>& keys,
            const std::chrono::milliseconds& timeout) override {
    waited = keys;
    HashStore::wait(keys, std::min(timeout, std::chrono::milliseconds(1)));
  }
  std::vector<std::string> waited;
};

// Counts the reports.
class CountingStore : public c10d::HashStore {
 public:
  std::vector<uint8_t> compareSet(const std::string& key, const std::vector<uint8_t>& expected,
                                  const std::vector<uint8_t>& desired) override {
    ++calls;
    return HashStore::compareSet(key, expected, desired);
  }
  int calls = 0;
};

const absl::Status kBroken = absl::UnavailableError("PeerError: gloo::IoException: closed by peer");

TEST_F(FailureNoticeTest, APeersErrorGetsTheWordsOfItsCause) {
  EXPECT_EQ(WithCause(kBroken, "3", "no such file: 'x'"),
            absl::UnavailableError("PeerError: rank 3 failed: no such file: 'x' (seen here as: "
                                   "gloo::IoException: closed by peer)"));
}

TEST_F(FailureNoticeTest, WhatAllRanksWereToldIsNotSaidTwice) {
  const absl::Status known = absl::UnavailableError("PeerError: the ranks don't do the same: …");
  EXPECT_EQ(WithCause(known, "1", "the ranks don't do the same: …"), known);
}

TEST_F(FailureNoticeTest, TheFirstRankToTellIsTheCause) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const absl::Status own = absl::InternalError("bad sample 17");
  AddFailureNotice({.store = store, .rank = 2});
  EXPECT_EQ(ExchangeFailures(own), own);
  AddFailureNotice({.store = store, .rank = 1});
  EXPECT_EQ(ExchangeFailures(absl::InternalError("later")).message(), "later");
  AddFailureNotice({.store = store});
  EXPECT_THAT(std::string(ExchangeFailures(kBroken).message()),
              StartsWith("PeerError: rank 2 failed: bad sample 17 (seen here as: "));
}

TEST_F(FailureNoticeTest, APeerThatSaidNothingLeavesTheErrorAsItIs) {
  AddFailureNotice({.store = c10::make_intrusive<c10d::HashStore>()});
  EXPECT_EQ(ExchangeFailures(kBroken), kBroken);
  EXPECT_TRUE(ExchangeFailures(absl::OkStatus()).ok());
}

TEST_F(FailureNoticeTest, TheHostOfTheStoreStaysForThoseWhoMustReadWhyItFailed) {
  const auto store = c10::make_intrusive<WaitedStore>();
  AddFailureNotice({.store = store, .rank = 0, .world_size = 3, .rank_zero_hosts = true});
  NotifyJoined({.store = store, .rank = 1, .world_size = 3, .rank_zero_hosts = true});
  LeaveStores(absl::InternalError("bad sample 17"));
  EXPECT_THAT(store->waited, ElementsAre("left/1", "left/2"));
}

TEST_F(FailureNoticeTest, TheHostOfTheStoreStaysForThoseWhoStillJoin) {
  const auto store = c10::make_intrusive<WaitedStore>();
  AddFailureNotice({.store = store, .rank = 0, .world_size = 3, .rank_zero_hosts = true});
  LeaveStores(absl::OkStatus());
  EXPECT_THAT(store->waited, ElementsAre("joined/1", "joined/2"));
}

TEST_F(FailureNoticeTest, WhenAllHaveJoinedOrLeftTheHostLeavesAtOnce) {
  const auto store = c10::make_intrusive<WaitedStore>();
  const FailureNotice host = {.store = store, .rank = 0, .world_size = 2, .rank_zero_hosts = true};
  const FailureNotice guest = {.store = store, .rank = 1, .world_size = 2, .rank_zero_hosts = true};
  NotifyJoined(guest);
  AddFailureNotice(host);
  LeaveStores(absl::OkStatus());
  AddFailureNotice(guest);
  LeaveStores(kBroken);
  AddFailureNotice(host);
  LeaveStores(absl::InternalError("bad sample 17"));
  EXPECT_THAT(store->waited, IsEmpty());
}

// A child that the program forks isn't the worker. Twin: the worker itself.
TEST_F(FailureNoticeTest, AForkedChildThatCallsExitReportsNothing) {
  const auto store = c10::make_intrusive<CountingStore>();
  AddFailureNotice({.store = store, .rank = 1, .world_size = 2});
  const auto calls_of_child = [&] {
    const pid_t child = fork();
    if (child == 0) {
      NotifyDeparture("called exit()");
      _exit(store->calls);
    }
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    return WEXITSTATUS(status);
  };
  EXPECT_EQ(calls_of_child(), 0);
  NotifyDeparture("called exit()");
  EXPECT_EQ(store->calls, 1);
}

// c10d warns of a host that is gone.
TEST_F(FailureNoticeTest, WhoEndsWellSaysNothingMoreToAHostThatMayBeGone) {
  const auto store = c10::make_intrusive<WaitedStore>();
  AddFailureNotice({.store = store, .rank = 1, .world_size = 2, .rank_zero_hosts = true});
  LeaveStores(absl::OkStatus());
  EXPECT_EQ(store->getNumKeys(), 0);
}

// Negative control: the agent or the launcher serves it.
TEST_F(FailureNoticeTest, NobodyStaysForAStoreThatOutlivesTheWorkers) {
  const auto store = c10::make_intrusive<WaitedStore>();
  AddFailureNotice({.store = store, .rank = 0, .world_size = 2});
  LeaveStores(absl::InternalError("bad sample 17"));
  EXPECT_THAT(store->waited, IsEmpty());
  EXPECT_EQ(store->getNumKeys(), 0);
}

}  // namespace
}  // namespace ddprun::worker
