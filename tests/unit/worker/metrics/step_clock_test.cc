#include "worker/metrics/figures.h"

#include <gtest/gtest.h>

#include <optional>

namespace ddprun::worker {
namespace {

constexpr Instant kBegin = Instant::FromNanoseconds(1'000'000'000'000);

TEST(StepClockTest, KnowsNothingBeforeTheFirstStep) {
  const StepClock clock(kBegin);
  EXPECT_EQ(clock.TimeFor(10), std::nullopt);
  EXPECT_EQ(clock.elapsed(), absl::ZeroDuration());
}

TEST(StepClockTest, IntervalsBeginAnew) {
  StepClock clock(kBegin);
  clock.Step(kBegin + absl::Seconds(1));
  clock.Step(kBegin + absl::Seconds(3));
  EXPECT_EQ(clock.interval(), absl::Seconds(3));
  EXPECT_EQ(clock.interval_steps(), 2);
  clock.TakeInterval();
  clock.Step(kBegin + absl::Seconds(7));
  EXPECT_EQ(clock.interval(), absl::Seconds(4));
  EXPECT_EQ(clock.interval_steps(), 1);
  EXPECT_EQ(clock.elapsed(), absl::Seconds(7));
}

TEST(StepClockTest, WhatIsNoTrainingDoesntCount) {
  StepClock clock(kBegin);
  clock.Step(kBegin + absl::Seconds(1));
  clock.Restart(kBegin + absl::Seconds(100));
  clock.Step(kBegin + absl::Seconds(101));
  EXPECT_EQ(clock.interval(), absl::Seconds(2));
  EXPECT_EQ(clock.TimeFor(5), absl::Seconds(5));
}

TEST(StepClockTest, TheTimeLeftForgetsASlowFirstStep) {
  StepClock clock(kBegin);
  Instant now = kBegin + absl::Seconds(60);
  clock.Step(now);
  EXPECT_EQ(clock.TimeFor(2), absl::Minutes(2));
  for (int step = 0; step < 3; ++step) clock.Step(now = now + absl::Seconds(1));
  EXPECT_EQ(clock.TimeFor(100), absl::Seconds(100));
}

TEST(StepClockTest, TheTimeLeftFollowsAChangeOfSpeed) {
  StepClock clock(kBegin);
  Instant now = kBegin;
  for (int step = 0; step < 1000; ++step) clock.Step(now = now + absl::Seconds(1));
  for (int step = 0; step < 300; ++step) clock.Step(now = now + absl::Seconds(2));
  EXPECT_GT(*clock.TimeFor(100), absl::Seconds(199));
}

}  // namespace
}  // namespace ddprun::worker
