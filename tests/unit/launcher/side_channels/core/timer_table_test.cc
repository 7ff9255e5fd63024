#include "launcher/side_channels/core/timer_table.h"

#include <gtest/gtest.h>

#include <csignal>
#include <string>

namespace ddprun::launcher {
namespace {

Instant At(int seconds) { return Instant() + absl::Seconds(seconds); }

TEST(TimerTable, ATimerExpiresOnceAtItsTime) {
  TimerTable timers;
  EXPECT_TRUE(timers.NextDeadline().is_infinite());
  ASSERT_TRUE(timers.Set(1, 100, "step", At(5), SIGKILL));
  EXPECT_EQ(timers.NextDeadline(), At(5));
  EXPECT_TRUE(timers.TakeExpired(At(5) - absl::Nanoseconds(1)).empty());
  const auto expired = timers.TakeExpired(At(5));
  ASSERT_EQ(expired.size(), 1U);
  EXPECT_EQ(expired[0].local_rank, 1U);
  EXPECT_EQ(expired[0].scope, "step");
  EXPECT_EQ(expired[0].signal, SIGKILL);
  EXPECT_EQ(timers.size(), 0U);
}

TEST(TimerTable, AReleasedOrRenewedTimerDoesNotExpire) {
  TimerTable timers;
  ASSERT_TRUE(timers.Set(0, 100, "a", At(5), SIGKILL));
  ASSERT_TRUE(timers.Set(0, 100, "b", At(5), SIGKILL));
  timers.Release(100, "a");
  timers.Release(100, "never set");
  ASSERT_TRUE(timers.Set(0, 100, "b", At(9), SIGKILL));
  EXPECT_TRUE(timers.TakeExpired(At(5)).empty());
  EXPECT_EQ(timers.TakeExpired(At(9)).size(), 1U);
}

TEST(TimerTable, OfAWorkersTimersTheEarliestWithASignalCountsAndAllGo) {
  TimerTable timers;
  ASSERT_TRUE(timers.Set(0, 100, "silent", At(1), 0));
  ASSERT_TRUE(timers.Set(0, 100, "late", At(3), SIGTERM));
  ASSERT_TRUE(timers.Set(0, 101, "child", At(2), SIGINT));
  ASSERT_TRUE(timers.Set(0, 100, "far", At(50), SIGINT));
  ASSERT_TRUE(timers.Set(1, 200, "other", At(50), SIGINT));
  const auto expired = timers.TakeExpired(At(4));
  ASSERT_EQ(expired.size(), 1U);
  EXPECT_EQ(expired[0].scope, "child");
  EXPECT_EQ(timers.size(), 1U);
  EXPECT_EQ(timers.NextDeadline(), At(50));
}

TEST(TimerTable, WithoutASignalATimerJustGoes) {
  TimerTable timers;
  ASSERT_TRUE(timers.Set(0, 100, "silent", At(1), 0));
  ASSERT_TRUE(timers.Set(0, 100, "far", At(50), SIGKILL));
  EXPECT_TRUE(timers.TakeExpired(At(2)).empty());
  EXPECT_EQ(timers.size(), 1U);
}

TEST(TimerTable, ForgetsAnEndedWorkerAndAGeneration) {
  TimerTable timers;
  ASSERT_TRUE(timers.Set(0, 100, "a", At(1), SIGKILL));
  ASSERT_TRUE(timers.Set(1, 200, "a", At(1), SIGKILL));
  timers.Forget(0);
  EXPECT_EQ(timers.size(), 1U);
  timers.Clear();
  EXPECT_TRUE(timers.NextDeadline().is_infinite());
}

TEST(TimerTable, IsBounded) {
  TimerTable timers;
  EXPECT_FALSE(timers.Set(0, 1, std::string(TimerTable::kScopeBytesMax + 1, 'x'), At(1), 9));
  for (uint32_t i = 0; i < TimerTable::kTimersMax; ++i) ASSERT_TRUE(timers.Set(0, i, "", At(1), 9));
  EXPECT_FALSE(timers.Set(0, 1'000'000, "", At(1), 9));
  EXPECT_TRUE(timers.Set(0, 5, "", At(2), 9)) << "a renewal needs no room";
}

}  // namespace
}  // namespace ddprun::launcher
