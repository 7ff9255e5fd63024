#include "tools/preflight/core/flood_rate.h"

#include <gtest/gtest.h>

#include "absl/time/time.h"

namespace ddprun::launcher {
namespace {

constexpr Instant kStart = Instant::FromNanoseconds(1'000'000'000);

// 32 reads of 1 MB, one in 100 us each, which is 80 Gbit/s; before read `late` comes a pause.
FloodRate Flood(int late, absl::Duration pause) {
  FloodRate rate(kStart);
  Instant now = kStart;
  for (int read = 0; read < 32; ++read) {
    now = now + absl::Microseconds(100) + (read == late ? pause : absl::ZeroDuration());
    rate.Add(now, 1'000'000);
  }
  return rate;
}

TEST(FloodRate, OfAnEvenFloodIsBytesByTime) {
  const FloodRate rate = Flood(-1, {});
  EXPECT_EQ(rate.bytes(), 32'000'000U);
  EXPECT_NEAR(rate.BitsPerSecond(), 80e9, 80e3);
}

// Bytes by time would fail this: 32 MB in 13.2 ms would be 19 Gbit/s, less than half.
TEST(FloodRate, AnEndThatWasHeldUpSaysNothingOfTheWay) {
  EXPECT_NEAR(Flood(7, absl::Milliseconds(10)).BitsPerSecond(), 80e9, 80e3);
  EXPECT_NEAR(Flood(0, absl::Milliseconds(10)).BitsPerSecond(), 80e9, 80e3);
}

TEST(FloodRate, ASlowWayIsSlowInAllParts) {
  FloodRate rate(kStart);
  for (int read = 1; read <= 60; ++read) rate.Add(kStart + read * absl::Milliseconds(1), 12'500);
  EXPECT_NEAR(rate.BitsPerSecond(), 100e6, 5e6);
}

// What a shaper lets through at once is less than half of a flood.
TEST(FloodRate, ABurstAtTheBeginningDoesNotCount) {
  FloodRate rate(kStart);
  rate.Add(kStart + absl::Microseconds(10), 250'000);
  for (int read = 1; read <= 60; ++read) rate.Add(kStart + read * absl::Milliseconds(1), 12'500);
  EXPECT_LT(rate.BitsPerSecond(), 150e6);
}

TEST(FloodRate, OfFewReadsIsThatOfTheWhole) {
  FloodRate rate(kStart);
  rate.Add(kStart + absl::Milliseconds(10), 1'000);
  EXPECT_NEAR(rate.BitsPerSecond(), 800e3, 1);
  rate.Add(kStart + absl::Milliseconds(20), 1'000);
  EXPECT_NEAR(rate.BitsPerSecond(), 800e3, 1);
}

TEST(FloodRate, HasABoundInTime) {
  FloodRate rate(kStart);
  rate.Add(kStart, 2'500);
  EXPECT_NEAR(rate.BitsPerSecond(), 1e9, 1) << "2,500 bytes in no less than 20 us";
}

}  // namespace
}  // namespace ddprun::launcher
