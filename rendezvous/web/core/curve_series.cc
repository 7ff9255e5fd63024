#include "rendezvous/web/core/curve_series.h"

#include "absl/time/time.h"

namespace ddprun::rendezvous {
namespace {

CurvePoint PointOf(const CurveSample& sample) {
  CurvePoint point{.first = sample.at, .last = sample.at, .samples = 1};
  for (size_t i = 0; i < kFigures; ++i) {
    if (!sample.figures[i].has_value()) continue;
    point.sums[i] = *sample.figures[i];
    point.counts[i] = 1;
  }
  return point;
}

// Merges `later`, which comes right after it, into `point`.
void Extend(const CurvePoint& later, CurvePoint* point) {
  point->last = later.last;
  point->samples += later.samples;
  for (size_t i = 0; i < kFigures; ++i) {
    point->sums[i] += later.sums[i];
    point->counts[i] += later.counts[i];
  }
}

}  // namespace

std::optional<double> CurvePoint::Mean(Figure figure) const {
  const auto i = static_cast<size_t>(figure);
  if (counts[i] == 0) return std::nullopt;
  return sums[i] / counts[i];
}

Instant CurvePoint::middle() const { return first + (last - first) / 2; }

CurveSeries::CurveSeries(Keeps keeps, size_t points_max) : keeps_(keeps), points_max_(points_max) {
  points_.reserve(points_max);
}

void CurveSeries::Add(const CurveSample& sample) {
  const CurvePoint point = PointOf(sample);
  if (!points_.empty() && points_.back().samples < samples_a_point_) {
    return Extend(point, &points_.back());
  }
  if (points_.size() == points_max_) {
    if (keeps_ == Keeps::kLatest) {
      points_.erase(points_.begin());
    } else {
      Halve();
    }
  }
  points_.push_back(point);
}

void CurveSeries::Halve() {
  for (size_t i = 0; i < points_max_ / 2; ++i) {
    points_[i] = points_[2 * i];
    Extend(points_[2 * i + 1], &points_[i]);
  }
  points_.resize(points_max_ / 2);
  samples_a_point_ *= 2;
}

}  // namespace ddprun::rendezvous
