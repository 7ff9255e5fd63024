#include "launcher/core/step_times.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kFirstStep = absl::Seconds(600);
constexpr absl::Duration kSlack = absl::Milliseconds(2500);

StepTimes Steps(absl::Duration each, int count) {
  StepTimes times;
  for (int i = 0; i < count; ++i) times.Add(each);
  return times;
}

TEST(StepTimesTest, KnowsNothingAtFirst) {
  EXPECT_EQ(StepTimes().Quantile(0.5), absl::ZeroDuration());
  EXPECT_EQ(StepTimes().seen(), 0U);
}

TEST(StepTimesTest, QuantilesAreUpperEdgesWithinNinePercent) {
  Rng rng(7);
  StepTimes times;
  std::vector<absl::Duration> all;
  for (int i = 0; i < 5000; ++i) {
    all.push_back(absl::Microseconds(50'000 + static_cast<int64_t>(rng.Below(100'000))));
    times.Add(all.back());
  }
  std::sort(all.begin(), all.end());
  for (const double q : {0.01, 0.5, 0.9, 0.99, 0.999, 1.0}) {
    const absl::Duration exact = all[static_cast<size_t>(q * static_cast<double>(all.size() - 1))];
    EXPECT_GE(times.Quantile(q), exact) << q;
    EXPECT_LE(times.Quantile(q), exact * 1.1) << q;
  }
}

// 101.1 ms is the edge of a bucket: by edges the nodes would differ by 9 %.
TEST(StepTimesTest, MediansOfEqualNodesAreEqual) {
  EXPECT_EQ(StepTimes().Median(), absl::ZeroDuration());
  StepTimes below;
  StepTimes above;
  for (int i = 0; i < 40000; ++i) {  // some fade meanwhile
    below.Add(absl::Microseconds(98000 + i % 4000));
    above.Add(absl::Microseconds(98500 + i % 4000));
  }
  EXPECT_NEAR(absl::FDivDuration(below.Median(), absl::Milliseconds(100)), 1.0, 0.02);
  EXPECT_NEAR(absl::FDivDuration(above.Median(), below.Median()), 1.0, 0.03);
  above.Add(absl::Hours(1), 100);
  EXPECT_NEAR(absl::FDivDuration(above.Median(), absl::Milliseconds(100)), 1.0, 0.03);
}

TEST(StepTimesTest, ExtremesFindAPlace) {
  StepTimes times;
  times.Add(absl::ZeroDuration());
  EXPECT_EQ(times.Quantile(1), absl::Microseconds(16));
  times.Add(absl::Hours(24 * 365));
  EXPECT_GT(times.Quantile(1), absl::Hours(24));
  times.Add(-absl::Seconds(1));
  EXPECT_EQ(times.Quantile(0.5), absl::Microseconds(16));
}

TEST(StepTimesTest, OldStepsFade) {
  StepTimes times = Steps(absl::Seconds(1), 1000);
  for (int i = 0; i < 200'000; ++i) times.Add(absl::Milliseconds(10));
  EXPECT_EQ(times.seen(), 201'000U);
  EXPECT_LT(times.Quantile(1), absl::Milliseconds(20)) << "the slow beginning is forgotten";
}

TEST(StepTimesTest, OneLookDoesNotOutweighAllOthers) {
  StepTimes times = Steps(absl::Milliseconds(10), 16'000);
  times.Add(absl::Seconds(1), 1'000'000'000);
  EXPECT_LE(times.Quantile(0.3), absl::Milliseconds(11));
}

TEST(LimitsTest, BelowFiveStepsTheFirstStepTimeout) {
  for (const int count : {0, 1, 4}) {
    const PhaseLimits limits = LimitsOf(Steps(absl::Milliseconds(100), count), kSlack, kFirstStep);
    EXPECT_EQ(limits.suspect, kFirstStep) << count;
    EXPECT_EQ(limits.overdue, 20 * kFirstStep);
    EXPECT_EQ(limits.sample, kUnlearnedSample);
  }
}

TEST(LimitsTest, BelowAHundredStepsTheMedianOrTwiceTheLongest) {
  StepTimes times = Steps(absl::Milliseconds(100), 5);
  EXPECT_GE(LimitsOf(times, kSlack, kFirstStep).suspect, 10 * absl::Milliseconds(100) + kSlack);
  EXPECT_LE(LimitsOf(times, kSlack, kFirstStep).suspect, 10 * absl::Milliseconds(110) + kSlack);
  EXPECT_GE(LimitsOf(Steps(absl::Seconds(3), 5), kSlack, kFirstStep).suspect, absl::Seconds(36));
  times.Add(absl::Seconds(20));
  EXPECT_GE(LimitsOf(times, kSlack, kFirstStep).suspect, absl::Seconds(40));
  EXPECT_GE(LimitsOf(times, kSlack, kFirstStep).sample, kSampleMost);
}

TEST(LimitsTest, FromAHundredStepsTheLongest) {
  StepTimes times = Steps(absl::Milliseconds(100), 999);
  StepTimes with_outlier = Steps(absl::Milliseconds(100), 998);
  with_outlier.Add(absl::Seconds(1));
  const absl::Duration plain = LimitsOf(times, kSlack, kFirstStep).suspect;
  const absl::Duration wide = LimitsOf(with_outlier, kSlack, kFirstStep).suspect;
  EXPECT_GE(plain, 3 * absl::Milliseconds(100) + kSuspectSlack);
  EXPECT_LE(plain, 3 * absl::Milliseconds(110) + kSuspectSlack);
  EXPECT_GE(wide, 3 * absl::Seconds(1) + kSuspectSlack);
}

TEST(LimitsTest, FromAThousandStepsTheQuantile) {
  StepTimes times = Steps(absl::Milliseconds(100), 2999);
  times.Add(absl::Seconds(10));  // one in 3,000
  const PhaseLimits limits = LimitsOf(times, kSlack, kFirstStep);
  EXPECT_LE(limits.suspect, 3 * absl::Milliseconds(110) + kSuspectSlack);
  EXPECT_GE(limits.sample, 4 * absl::Milliseconds(100));
  EXPECT_LE(limits.sample, 4 * absl::Milliseconds(110));
  EXPECT_EQ(limits.overdue, kBusyLeast);
  EXPECT_GE(LimitsOf(Steps(absl::Seconds(2), 2000), kSlack, kFirstStep).overdue, absl::Seconds(40));
}

// Two samples outlast a program that sleeps through steps ten times as long.
TEST(LimitsTest, TenTimesSlowerIsWithinTheSamples) {
  for (const absl::Duration step :
       {absl::Milliseconds(1), absl::Milliseconds(70), absl::Seconds(1), absl::Seconds(9)}) {
    const PhaseLimits limits = LimitsOf(Steps(step, 2000), kSlack, kFirstStep);
    EXPECT_GT(limits.suspect + 2 * limits.sample, 10 * step) << absl::FormatDuration(step);
    EXPECT_GT(limits.overdue, 10 * step);
  }
}

// Looks come 10 ms apart: some see two steps of 7 ms, others one.
TEST(StepPace, StepsMayBeShorterThanTheLooksAreApart) {
  StepPace pace;
  uint64_t seen = 0;
  for (uint64_t look = 1; look <= 300; ++look) {
    const uint64_t now = look * 10 / 7;
    pace.Add(absl::Milliseconds(10), now - seen);
    seen = now;
  }
  EXPECT_NEAR(absl::ToDoubleMilliseconds(pace.Median()), 7, 0.5);
}

// A program goes on from a checkpoint; one step is as good as many then.
TEST(StepPace, AJumpIsNoPace) {
  StepPace pace;
  for (int i = 0; i < 9; ++i) pace.Add(absl::Milliseconds(300), 1);
  pace.Add(absl::Milliseconds(300), 48'000);
  EXPECT_NEAR(absl::ToDoubleMilliseconds(pace.Median()), 300, 1);
}

}  // namespace
}  // namespace ddprun::launcher
