#include "launcher/logs/core/log_times.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

Instant At(int64_t seconds) { return Instant() + absl::Seconds(seconds); }

TEST(LogTimes, WhatWasThereBefore) {
  LogTimes times;
  EXPECT_EQ(times.SizeBefore(At(100)), 0U);
  times.Note(At(10), 5);
  times.Note(At(11), 9);
  EXPECT_EQ(times.SizeBefore(At(9)), 0U);
  EXPECT_EQ(times.SizeBefore(At(10)), 5U);
  EXPECT_EQ(times.SizeBefore(At(11)), 9U);
  EXPECT_EQ(times.SizeBefore(At(1000)), 9U);
}

TEST(LogTimes, AQuietTimeCostsNothing) {
  LogTimes times;
  for (int second = 1; second <= 1000; ++second) times.Note(At(second), 7);
  EXPECT_EQ(times.mark_count(), 1U);
  times.Note(At(0), 8);     // back in time
  times.Note(At(2000), 3);  // smaller
  EXPECT_EQ(times.mark_count(), 1U);
}

// A byte a second for a month: never too little is shown, and at most a sixteenth too much.
TEST(LogTimes, AMonthIsSmallAndFineEnough) {
  constexpr int kMonth = 30 * 24 * 3600;
  LogTimes times;
  for (int second = 1; second <= kMonth; ++second)
    times.Note(At(second), static_cast<uint64_t>(second));
  EXPECT_LT(times.mark_count(), 1000U);
  for (const int age : {0, 1, 60, 300, 3600, 86'400, kMonth - 1}) {
    const auto size = static_cast<int>(times.SizeBefore(At(kMonth - age)));
    EXPECT_LE(size, kMonth - age);
    EXPECT_GE(size, kMonth - age - age / 16 - 1) << age;
  }
}

TEST(LogTimes, WhatIsLongAgoGetsCoarse) {
  LogTimes times;
  for (int second = 1; second <= 3600; ++second)
    times.Note(At(second), static_cast<uint64_t>(second));
  times.Thin(At(30 * 24 * 3600));
  EXPECT_EQ(times.mark_count(), 2U);
}

}  // namespace
}  // namespace ddprun::launcher
