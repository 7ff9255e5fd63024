#include "rendezvous/web/core/curve_series.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "absl/time/time.h"

namespace ddprun::rendezvous::curve_series_test {
namespace {

Instant At(int seconds) { return Instant() + absl::Seconds(seconds); }

CurveSample Sample(int second, std::optional<double> rate) {
  CurveSample sample{.at = At(second)};
  sample.figures[static_cast<size_t>(Figure::kStepRate)] = rate;
  return sample;
}

TEST(CurveSeries, TheLatestAreKeptAsTheyCame) {
  CurveSeries series(CurveSeries::Keeps::kLatest, 4);
  for (int i = 0; i < 7; ++i) series.Add(Sample(i, i));
  ASSERT_EQ(series.points().size(), 4U);
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(series.points()[i].middle(), At(3 + i));
    EXPECT_EQ(series.points()[i].Mean(Figure::kStepRate), 3.0 + i);
  }
}

TEST(CurveSeries, AllOfItStaysWithinItsPoints) {
  CurveSeries series(CurveSeries::Keeps::kWhole, 8);
  for (int i = 0; i < 100'000; ++i) {
    series.Add(Sample(i, 1));
    ASSERT_LE(series.points().size(), 8U);
    ASSERT_GE(series.points().size(), i < 4 ? 1U : 4U);
    ASSERT_EQ(series.points().front().first, At(0)) << "the beginning stays";
    ASSERT_EQ(series.points().back().last, At(i)) << "and the end";
  }
}

TEST(CurveSeries, NoSampleIsLostOrCountedTwice) {
  CurveSeries series(CurveSeries::Keeps::kWhole, 8);
  double sum = 0;
  for (int i = 0; i < 1000; ++i) {
    series.Add(Sample(i, i));
    sum += i;
    double seen = 0;
    uint32_t samples = 0;
    Instant before = At(-1);
    for (const CurvePoint& point : series.points()) {
      ASSERT_GT(point.first, before);
      before = point.last;
      samples += point.samples;
      seen += *point.Mean(Figure::kStepRate) * point.samples;
    }
    ASSERT_EQ(samples, i + 1);
    ASSERT_NEAR(seen, sum, 1e-6 * sum);
  }
}

TEST(CurveSeries, AllPointsButTheLastAreOfTheSameLength) {
  CurveSeries series(CurveSeries::Keeps::kWhole, 8);
  for (int i = 0; i < 37; ++i) series.Add(Sample(i, 1));
  const auto& points = series.points();
  for (size_t i = 0; i + 1 < points.size(); ++i) EXPECT_EQ(points[i].samples, points[0].samples);
  EXPECT_LE(points.back().samples, points[0].samples);
}

TEST(CurveSeries, AMeanIsOfThoseThatTold) {
  CurveSeries series(CurveSeries::Keeps::kWhole, 2);
  series.Add(Sample(0, 4));
  series.Add(Sample(1, std::nullopt));
  series.Add(Sample(2, std::nullopt));  // the first two are one now
  EXPECT_EQ(series.points()[0].Mean(Figure::kStepRate), 4.0);
  EXPECT_EQ(series.points()[1].Mean(Figure::kStepRate), std::nullopt);
  EXPECT_EQ(series.points()[0].Mean(Figure::kLoss), std::nullopt);
}

// A loss that has diverged must not be thinned away.
TEST(CurveSeries, WhatIsNoNumberStays) {
  CurveSeries series(CurveSeries::Keeps::kWhole, 2);
  for (int i = 0; i < 64; ++i) {
    series.Add(Sample(i, i == 5 ? std::numeric_limits<double>::quiet_NaN() : 1));
  }
  EXPECT_TRUE(std::isnan(*series.points()[0].Mean(Figure::kStepRate)));
}

}  // namespace
}  // namespace ddprun::rendezvous::curve_series_test
