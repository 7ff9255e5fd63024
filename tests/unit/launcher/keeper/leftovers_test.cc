#include "launcher/keeper/leftovers.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kTime = absl::Seconds(10);
constexpr pid_t kChild = 7;

Instant At(double seconds) { return Instant() + absl::Seconds(seconds); }

class LeftoversTest : public ::testing::Test {
 protected:
  std::string WhyKill(double seconds, bool sweeps = true, pid_t child = kChild) {
    return leftovers_.WhyKill(child, "1.1.0", At(seconds), sweeps);
  }

  std::map<pid_t, std::string> commands_ = {{kChild, "aws s3 cp"}};
  std::map<pid_t, std::string> holding_;
  Leftovers leftovers_{{.command = [this](pid_t pid) { return commands_[pid]; },
                        .holding = [this](pid_t pid) { return holding_[pid]; }}};
};

TEST_F(LeftoversTest, TheTimeBeginsWithTheGenerationsEnd) {
  leftovers_.OnWorkerEnded("1.1.0", /*failed=*/false);
  EXPECT_EQ(WhyKill(100, /*sweeps=*/false), "");
  EXPECT_TRUE(leftovers_.NextDeadline().is_infinite());
  EXPECT_TRUE(leftovers_.Left().empty());
  leftovers_.BeginDeadline(At(200), kTime, /*strict=*/false);
  EXPECT_EQ(WhyKill(209), "");
  EXPECT_EQ(leftovers_.Left().size(), 1U);
  EXPECT_EQ(leftovers_.NextDeadline(), At(210));
  EXPECT_EQ(WhyKill(210), "was still there");
}

TEST_F(LeftoversTest, WhatComesToLightLaterHasTheDeadlineOfItsOrigin) {
  leftovers_.OnWorkerEnded("1.1.0", true);
  EXPECT_EQ(WhyKill(0, false), "");
  leftovers_.BeginDeadline(At(0), kTime, true);
  EXPECT_EQ(WhyKill(9, true, 8), "");
  leftovers_.BeginDeadline(At(9), kTime, true);  // the next generation's end
  EXPECT_NE(WhyKill(10, true, 9), "");
}

TEST_F(LeftoversTest, AnUnknownOriginGetsTheDeadlineOfTheSweep) {
  leftovers_.BeginDeadline(At(0), kTime, true);
  EXPECT_EQ(WhyKill(1), "");
  EXPECT_NE(WhyKill(10), "");
}

TEST_F(LeftoversTest, WhatARestartNeedsHasNoTime) {
  holding_[kChild] = "port 6006";
  leftovers_.OnWorkerEnded("1.1.0", /*failed=*/true);
  EXPECT_EQ(WhyKill(0, false), "held port 6006");
}

TEST_F(LeftoversTest, AfterSuccessItHasUnlessARestartComes) {
  holding_[kChild] = "a GPU";
  leftovers_.OnWorkerEnded("1.1.0", /*failed=*/false);
  leftovers_.BeginDeadline(At(0), kTime, /*strict=*/false);
  EXPECT_EQ(WhyKill(5), "");
  leftovers_.Shorten(At(5), kTime);
  EXPECT_EQ(WhyKill(5), "held a GPU");
}

TEST_F(LeftoversTest, AServerIsNotWaitedForAsLongAsAnUpload) {
  leftovers_.OnWorkerEnded("1.1.0", /*failed=*/false);
  holding_[kChild] = "port 6006";
  EXPECT_EQ(WhyKill(0, false), "");
  leftovers_.BeginDeadline(At(0), absl::Minutes(10), /*strict=*/false);
  EXPECT_EQ(WhyKill(1, true, 8), "") << "negative control: it listens nowhere";
  EXPECT_EQ(WhyKill(9), "");
  EXPECT_EQ(WhyKill(10), "was still there");
  EXPECT_EQ(WhyKill(10, true, 8), "");
}

TEST_F(LeftoversTest, AServerThatIsToStayStays) {
  leftovers_.OnWorkerEnded("1.1.0", /*failed=*/false);
  holding_[kChild] = "port 6006";
  EXPECT_EQ(WhyKill(0, false), "");
  leftovers_.BeginDeadline(At(0), absl::InfiniteDuration(), /*strict=*/false);
  EXPECT_EQ(WhyKill(1000), "");
}

TEST_F(LeftoversTest, WhatOnlyCleansUpHasThreeSecondsAtLeast) {
  commands_[kChild] = "python3 -c from multiprocessing.resource_tracker import main;main(6)";
  holding_[kChild] = "a GPU";
  leftovers_.BeginDeadline(At(0), absl::ZeroDuration(), true);
  EXPECT_EQ(WhyKill(0), "");
  EXPECT_EQ(WhyKill(2.9), "");
  EXPECT_EQ(WhyKill(3), "was still there");
}

TEST_F(LeftoversTest, OneThatWasKilledIsNotLeftAndIsForgottenWhenItIsReaped) {
  leftovers_.BeginDeadline(At(0), absl::ZeroDuration(), true);
  ASSERT_NE(WhyKill(0), "");
  EXPECT_EQ(leftovers_.MarkKilled(kChild).command, "aws s3 cp");
  EXPECT_FALSE(leftovers_.IsLeft(kChild));
  EXPECT_TRUE(leftovers_.AnyDated());
  leftovers_.ForgetEmpty();  // its origin stays as long as it is there
  EXPECT_TRUE(leftovers_.OnReaped(kChild));
  EXPECT_FALSE(leftovers_.AnyDated());
  EXPECT_TRUE(leftovers_.empty());
}

TEST_F(LeftoversTest, WithoutABoundTheyStay) {
  leftovers_.BeginDeadline(At(0), absl::InfiniteDuration(), false);
  EXPECT_EQ(WhyKill(1e9), "");
  EXPECT_EQ(leftovers_.Left().size(), 1U);
}

}  // namespace
}  // namespace ddprun::launcher
