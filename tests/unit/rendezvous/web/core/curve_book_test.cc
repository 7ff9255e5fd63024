#include "rendezvous/web/core/curve_book.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous::curve_book_test {
namespace {

Instant At(double seconds) { return Instant() + absl::Seconds(seconds); }

JobReading Reading(const std::string& run_id) {
  return {.run_id = run_id, .steps = {}, .loss = 0.5, .sample_rate = {}, .gpu_busy = 0.9};
}

TEST(CurveBook, TakesDownEachPeriodHoweverOftenItIsTold) {
  CurveBook book;
  for (int ms = 0; ms <= 20'000; ms += 50)
    book.Take(Instant() + absl::Milliseconds(ms), {Reading("a")});
  // Each period, but for a little that may be early.
  EXPECT_EQ(book.jobs().at("a").latest.points().size(), 12U);
  EXPECT_EQ(book.jobs().at("a").whole.points().front().Mean(Figure::kLoss), 0.5);
}

TEST(CurveBook, TenMinutesInFullAndAllOfIt) {
  CurveBook book;
  for (int second = 0; second < 6000; second += 2) book.Take(At(second), {Reading("a")});
  const JobCurves& curves = book.jobs().at("a");
  EXPECT_EQ(curves.latest.points().front().first, At(5998 - 598));
  EXPECT_EQ(curves.whole.points().front().first, At(0));
  EXPECT_LE(curves.whole.points().size(), JobCurves::kPoints);
}

TEST(CurveBook, JobsThatAreGoneAreForgotten) {
  CurveBook book;
  book.Take(At(0), {Reading("a"), Reading("b")});
  book.Take(At(2), {Reading("b")});
  EXPECT_FALSE(book.jobs().contains("a"));
  EXPECT_EQ(book.jobs().at("b").latest.points().size(), 2U);
}

TEST(CurveBook, MemoryHasABound) {
  CurveBook book;
  std::vector<JobReading> many;
  for (size_t i = 0; i < 2 * CurveBook::kJobsMax; ++i) many.push_back(Reading(absl::StrCat(i)));
  book.Take(At(0), many);
  EXPECT_EQ(book.jobs().size(), CurveBook::kJobsMax);
  EXPECT_LE(2 * JobCurves::kPoints * sizeof(CurvePoint), size_t{45} << 10);
  for (int second = 2; second < 10'000; second += 2) book.Take(At(second), {Reading("0")});
  const JobCurves& curves = book.jobs().at("0");
  EXPECT_EQ(curves.latest.points().capacity(), JobCurves::kPoints);
  EXPECT_EQ(curves.whole.points().capacity(), JobCurves::kPoints);
}

TEST(CurveBook, AskingTakesAHundredthOfTheTimeAtMost) {
  EXPECT_EQ(CurveBook::PauseAfter(absl::Milliseconds(1)), absl::Seconds(2));
  EXPECT_EQ(CurveBook::PauseAfter(absl::Milliseconds(100)), absl::Seconds(10));
  EXPECT_EQ(CurveBook::PauseAfter(absl::Seconds(2)), absl::Minutes(1));
}

}  // namespace
}  // namespace ddprun::rendezvous::curve_book_test
