#include "base/instant.h"

#include <gtest/gtest.h>

namespace ddprun {
namespace {

constexpr Instant At(int64_t ns) { return Instant::FromNanoseconds(ns); }

TEST(InstantTest, AddsAndSubtractsDurations) {
  EXPECT_EQ(At(5) + absl::Nanoseconds(7), At(12));
  EXPECT_EQ(At(5) - absl::Nanoseconds(7), At(-2));
  EXPECT_EQ(At(12) - At(5), absl::Nanoseconds(7));
  EXPECT_EQ(At(5) - At(12), absl::Nanoseconds(-7));
}

TEST(InstantTest, OrdersByTime) {
  EXPECT_LT(At(-1), At(0));
  EXPECT_EQ(Instant(), At(0));
  EXPECT_LT(At(INT64_MAX - 1), Instant::Infinite());
}

TEST(InstantTest, NeverStaysNever) {
  EXPECT_EQ(Instant::Infinite() + absl::Seconds(1), Instant::Infinite());
  EXPECT_EQ(Instant::Infinite() - absl::Seconds(1), Instant::Infinite());
  EXPECT_EQ(At(1) + absl::InfiniteDuration(), Instant::Infinite());
  EXPECT_EQ(Instant::Infinite() - At(1), absl::InfiniteDuration());
  EXPECT_EQ(Instant::Infinite() - Instant::Infinite(), absl::ZeroDuration());
  EXPECT_TRUE(Instant::Infinite().is_infinite());
  EXPECT_FALSE(At(INT64_MAX - 1).is_infinite());
}

TEST(InstantTest, EndsAtItsLimits) {
  EXPECT_EQ(At(5) + absl::Seconds(INT64_MAX), Instant::Infinite());
  EXPECT_EQ(At(5) + absl::Nanoseconds(INT64_MAX), Instant::Infinite());
  EXPECT_EQ(At(-5) - absl::Nanoseconds(INT64_MAX), At(INT64_MIN));
  EXPECT_GT(At(INT64_MAX - 1) - At(INT64_MIN), absl::Nanoseconds(INT64_MAX));
}

TEST(InstantTest, ShowsSecondsWithMilliseconds) {
  EXPECT_EQ(ToString(At(12'345'000'000)), "12.345s");
  EXPECT_EQ(ToString(At(0)), "0.000s");
  EXPECT_EQ(ToString(Instant::Infinite()), "never");
}

}  // namespace
}  // namespace ddprun
