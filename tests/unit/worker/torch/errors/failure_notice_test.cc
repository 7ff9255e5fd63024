#include "worker/torch/errors/failure_notice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <torch/csrc/distributed/c10d/HashStore.hpp>

namespace ddprun::worker {
namespace {

using ::testing::StartsWith;

const absl::Status kBroken = absl::UnavailableError("PeerError: gloo::IoException: closed by peer");

TEST(FailureNoticeTest, APeersErrorGetsTheWordsOfItsCause) {
  EXPECT_EQ(WithCause(kBroken, "3", "no such file: 'x'"),
            absl::UnavailableError("PeerError: rank 3 failed: no such file: 'x' (seen here as: "
                                   "gloo::IoException: closed by peer)"));
}

TEST(FailureNoticeTest, WhatAllRanksWereToldIsNotSaidTwice) {
  const absl::Status known = absl::UnavailableError("PeerError: the ranks don't do the same: …");
  EXPECT_EQ(WithCause(known, "1", "the ranks don't do the same: …"), known);
}

TEST(FailureNoticeTest, TheFirstRankToTellIsTheCause) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const absl::Status own = absl::InternalError("bad sample 17");
  AddFailureNotice(store, 2);
  EXPECT_EQ(ExchangeFailures(own), own);
  AddFailureNotice(store, 1);
  EXPECT_EQ(ExchangeFailures(absl::InternalError("later")).message(), "later");
  AddFailureNotice(store, 0);
  EXPECT_THAT(std::string(ExchangeFailures(kBroken).message()),
              StartsWith("PeerError: rank 2 failed: bad sample 17 (seen here as: "));
}

TEST(FailureNoticeTest, APeerThatSaidNothingLeavesTheErrorAsItIs) {
  AddFailureNotice(c10::make_intrusive<c10d::HashStore>(), 0);
  EXPECT_EQ(ExchangeFailures(kBroken), kBroken);
  EXPECT_TRUE(ExchangeFailures(absl::OkStatus()).ok());
}

}  // namespace
}  // namespace ddprun::worker
