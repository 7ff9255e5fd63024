#include "rendezvous/core/farewell.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

Verdict Failed() {
  return {.outcome = Outcome::kFailed, .reason = "rank 1 crashed", .rule = "restarts_spent"};
}

TEST(Farewell, NothingIsWaitedForBeforeTheEnd) {
  const Farewell farewell;
  EXPECT_FALSE(farewell.begun());
  EXPECT_TRUE(farewell.deadline().is_infinite());
  EXPECT_EQ(farewell.BrokenInvariant(), "");
}

TEST(Farewell, ItIsOverWhenAllAreGoneAndThatOnce) {
  Farewell farewell;
  farewell.Begin(Instant(), Failed());
  EXPECT_EQ(farewell.BrokenInvariant(), "");
  EXPECT_FALSE(farewell.Finish(Instant(), /*anybody_left=*/true));
  EXPECT_TRUE(farewell.Finish(Instant(), /*anybody_left=*/false));
  EXPECT_TRUE(farewell.forgotten());
  EXPECT_TRUE(farewell.deadline().is_infinite());
  EXPECT_FALSE(farewell.Finish(Instant(), /*anybody_left=*/false));
  EXPECT_EQ(farewell.BrokenInvariant(), "");
}

TEST(Farewell, ItIsOverAfterItsTimeWhoeverIsLeft) {
  Farewell farewell;
  farewell.Begin(Instant(), Failed());
  EXPECT_EQ(farewell.deadline(), Instant() + kFarewell);
  const Instant before = Instant() + kFarewell - absl::Nanoseconds(1);
  EXPECT_FALSE(farewell.Finish(before, /*anybody_left=*/true));
  EXPECT_TRUE(farewell.Finish(Instant() + kFarewell, /*anybody_left=*/true));
}

TEST(Farewell, WhoComesTooLateHearsWhatHappened) {
  Farewell farewell;
  farewell.Begin(Instant(), Failed());
  EXPECT_EQ(farewell.Refusal().code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(farewell.Refusal().message()),
              HasSubstr("the job has ended (failed: rank 1 crashed)"));
}

TEST(FarewellDeath, AJobEndsOnceAndByARule) {
  Farewell farewell;
  EXPECT_DEATH(farewell.Finish(Instant(), false), "not over");
  EXPECT_DEATH(farewell.Begin(Instant(), Verdict{}), "names its rule");
  farewell.Begin(Instant(), Failed());
  EXPECT_DEATH(farewell.Begin(Instant(), Failed()), "ends once");
}

}  // namespace
}  // namespace ddprun::rendezvous
