#include "launcher/core/supervisor/departure.h"

#include <gtest/gtest.h>

namespace ddprun::launcher::agreed_stop_test {
namespace {

using Due = AgreedStop::Due;

Instant Time(double seconds) { return Instant() + absl::Seconds(seconds); }

TEST(AgreedStop, HalfOfTheTimeIsForReachingTheStep) {
  AgreedStop stop;
  EXPECT_TRUE(stop.Deadline().is_infinite());
  stop.Commit(Time(1), absl::Seconds(8));
  EXPECT_TRUE(stop.committed());
  EXPECT_EQ(stop.Deadline(), Time(5));
  EXPECT_EQ(stop.OnTimer(Time(4.9)), Due::kNothing);
  EXPECT_EQ(stop.OnTimer(Time(5)), Due::kLook);
  EXPECT_EQ(stop.OnTimer(Time(6)), Due::kNothing) << "one look";
  EXPECT_EQ(stop.Deadline(), Time(9));
  EXPECT_EQ(stop.OnTimer(Time(9)), Due::kTimeIsOver);
  EXPECT_EQ(stop.BrokenInvariant(), "");
}

TEST(AgreedStop, AfterAFailureOnlyWhoIsJustBehindGetsThere) {
  AgreedStop stop;
  stop.Commit(Time(1), absl::Seconds(8));
  stop.Hasten(Time(2));
  EXPECT_EQ(stop.Deadline(), Time(2.25));
  stop.Hasten(Time(2.1));
  EXPECT_EQ(stop.Deadline(), Time(2.25)) << "the first failure counts";
  EXPECT_EQ(stop.OnTimer(Time(2.25)), Due::kLook);
  EXPECT_EQ(stop.Deadline(), Time(9)) << "workers that save are spared";
}

TEST(AgreedStop, AFailureAfterTheLookHasAnother) {
  AgreedStop stop;
  stop.Commit(Time(1), absl::Seconds(8));
  EXPECT_EQ(stop.OnTimer(Time(5)), Due::kLook);
  stop.Hasten(Time(6));
  EXPECT_EQ(stop.OnTimer(Time(6.25)), Due::kLook);
}

TEST(AgreedStop, TheNextGenerationHasNone) {
  AgreedStop stop;
  stop.Commit(Time(1), absl::Seconds(8));
  stop.Reset();
  EXPECT_FALSE(stop.committed());
  EXPECT_TRUE(stop.Deadline().is_infinite());
  EXPECT_EQ(stop.BrokenInvariant(), "");
}

TEST(AgreedStopDeathTest, OneStepForAGeneration) {
  AgreedStop stop;
  EXPECT_DEATH(stop.Hasten(Time(1)), "only workers on their way to a step");
  stop.Commit(Time(1), absl::Seconds(8));
  EXPECT_DEATH(stop.Commit(Time(2), absl::Seconds(8)), "a generation stops at one step");
}

}  // namespace
}  // namespace ddprun::launcher::agreed_stop_test
