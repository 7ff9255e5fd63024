#include "rendezvous/client/reconnect_pauses.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace ddprun::rendezvous {
namespace {

class ReconnectPausesTest : public ::testing::Test {
 protected:
  absl::Duration Fail() {
    const absl::Duration pause = pauses_.AfterFailure(now_);
    EXPECT_EQ(pauses_.BrokenInvariant(), "");
    now_ = now_ + pause;
    return pause;
  }
  static void ExpectAbout(absl::Duration pause, absl::Duration full) {
    EXPECT_GE(pause, full * 4 / 5);
    EXPECT_LE(pause, full);
  }
  // The longest pause from here to `end`.
  absl::Duration LongestUntil(Instant end) {
    absl::Duration longest;
    while (now_ < end) longest = std::max(longest, Fail());
    return longest;
  }

  Instant now_ = Instant() + absl::Seconds(100);
  ReconnectPauses pauses_{ReconnectSettings(), 7, now_};
};

TEST_F(ReconnectPausesTest, TheyDouble) {
  for (const int ms : {25, 50, 100, 200, 200}) ExpectAbout(Fail(), absl::Milliseconds(ms));
}

TEST_F(ReconnectPausesTest, NoneIsLongInTheFirstHalfMinute) {
  const Instant began = now_;
  const absl::Duration longest = LongestUntil(began + absl::Seconds(30));
  EXPECT_LE(longest, absl::Milliseconds(200));
  EXPECT_GT(longest, absl::Milliseconds(190)) << "the bound is used";
  EXPECT_GT(LongestUntil(began + absl::Seconds(60)), absl::Milliseconds(800));
}

TEST_F(ReconnectPausesTest, AStreamThatWorkedBeginsAnew) {
  LongestUntil(now_ + absl::Seconds(60));
  EXPECT_LT(pauses_.AfterStream(), absl::Milliseconds(25));
  ExpectAbout(Fail(), absl::Milliseconds(25));
}

// PROTOCOL's Times: a service that is started again has its agents back within 300 ms, one that
// takes a lost machine's place too, however late.
TEST_F(ReconnectPausesTest, NoneIsLongForWhoHadTheServiceBefore) {
  pauses_.AfterStream();
  EXPECT_LE(LongestUntil(now_ + absl::Minutes(10)), absl::Milliseconds(200));
}

// All streams of a service end in one moment.
TEST_F(ReconnectPausesTest, AfterAStreamThatWorkedEachWaitsAsLongAsItLikes) {
  std::set<absl::Duration> pauses;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    ReconnectPauses node(ReconnectSettings(), seed, now_);
    pauses.insert(node.AfterStream());
  }
  EXPECT_GT(pauses.size(), 50U);
  EXPECT_LT(*pauses.begin(), absl::Milliseconds(3));
  EXPECT_GT(*pauses.rbegin(), absl::Milliseconds(22));
}

TEST_F(ReconnectPausesTest, NodesDoNotComeInOneMoment) {
  ReconnectPauses other(ReconnectSettings(), 8, now_);
  EXPECT_NE(pauses_.AfterFailure(now_), other.AfterFailure(now_));
}

TEST_F(ReconnectPausesTest, AShorterLongestHoldsFromTheFirstOn) {
  ReconnectPauses pauses({.first = absl::Milliseconds(8), .longest = absl::Milliseconds(4)}, 7,
                         now_);
  for (int i = 0; i < 4; ++i) EXPECT_LE(pauses.AfterFailure(now_), absl::Milliseconds(4));
}

}  // namespace
}  // namespace ddprun::rendezvous
