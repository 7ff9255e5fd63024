#include "rendezvous/web/core/curve_book.h"

#include <gtest/gtest.h>

namespace ddprun::rendezvous::step_rate_test {
namespace {

StepReading Reading(double second, uint64_t step, double step_seconds = 0.1,
                    uint64_t generation = 1) {
  return {.at = Instant() + absl::Seconds(second),
          .generation = generation,
          .step = step,
          .step_time = absl::Seconds(step_seconds)};
}

TEST(StepRate, IsWhatWasTaken) {
  StepRate rate;
  EXPECT_EQ(rate.Take(Reading(0, 100)), std::nullopt);
  EXPECT_EQ(rate.Take(Reading(2, 120)), 10.0);
  EXPECT_EQ(rate.Take(Reading(4, 130)), 5.0) << "a median step wouldn't show a wait";
}

TEST(StepRate, AHangIsZero) {
  StepRate rate;
  rate.Take(Reading(0, 100));
  rate.Take(Reading(2, 120));
  EXPECT_EQ(rate.Take(Reading(6, 120)), 10.0);
  EXPECT_EQ(rate.Take(Reading(7.5, 120)), 0.0);
  EXPECT_EQ(rate.Take(Reading(12, 130)), 1.0) << "the wait counts";
}

// Each step lasts for several looks.
TEST(StepRate, LongStepsAreNoHang) {
  StepRate rate;
  rate.Take(Reading(0, 100, 20));
  for (int second = 2; second < 20; second += 2) {
    EXPECT_EQ(rate.Take(Reading(second, 100, 20)), std::nullopt);
  }
  EXPECT_EQ(rate.Take(Reading(20, 101, 20)), 0.05);
  EXPECT_EQ(rate.Take(Reading(78, 101, 20)), 0.05);
  EXPECT_EQ(rate.Take(Reading(82, 101, 20)), 0.0);
}

TEST(StepRate, AGenerationBeginsAnew) {
  StepRate rate;
  rate.Take(Reading(0, 100));
  rate.Take(Reading(2, 120));
  EXPECT_EQ(rate.Take(Reading(4, 90, 0.1, 2)), std::nullopt);
  EXPECT_EQ(rate.Take(Reading(6, 110, 0.1, 2)), 10.0);
  EXPECT_EQ(rate.Take(Reading(8, 90, 0.1, 2)), std::nullopt) << "steps that go back are others";
}

TEST(StepRate, WithoutMarksThereIsNone) {
  StepRate rate;
  StepReading unmarked = Reading(0, 0);
  unmarked.step.reset();
  EXPECT_EQ(rate.Take(unmarked), std::nullopt);
  rate.Take(Reading(2, 100));
  rate.Take(Reading(4, 120));
  unmarked.at = Instant() + absl::Seconds(6);
  EXPECT_EQ(rate.Take(unmarked), std::nullopt);
}

// A node's news may be older than those of the look before.
TEST(StepRate, TimeThatStandsStillDividesNothing) {
  StepRate rate;
  rate.Take(Reading(2, 100));
  EXPECT_EQ(rate.Take(Reading(2, 110)), std::nullopt);
  EXPECT_EQ(rate.Take(Reading(1, 120)), std::nullopt);
  EXPECT_EQ(rate.Take(Reading(4, 120)), 10.0);
}

}  // namespace
}  // namespace ddprun::rendezvous::step_rate_test
