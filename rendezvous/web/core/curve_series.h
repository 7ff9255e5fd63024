#ifndef DDPRUN_RENDEZVOUS_WEB_CORE_CURVE_SERIES_H_
#define DDPRUN_RENDEZVOUS_WEB_CORE_CURVE_SERIES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/instant.h"

namespace ddprun::rendezvous {

// What a curve can show.
enum class Figure { kStepRate, kLoss, kSampleRate, kGpuBusy };
inline constexpr size_t kFigures = 4;

// The figures of a job at one moment, indexed by Figure; nullopt: not reported.
struct CurveSample {
  Instant at;
  std::array<std::optional<double>, kFigures> figures = {};
};

// The sum of some consecutive samples.
struct CurvePoint {
  Instant first;
  Instant last;
  uint32_t samples = 0;
  std::array<double, kFigures> sums = {};
  std::array<uint32_t, kFigures> counts = {};

  // The mean of the samples that have the figure; nullopt = none has.
  std::optional<double> Mean(Figure figure) const;
  Instant middle() const;
};

// A job's curves within a fixed number of points, however long the job runs. kLatest: the latest
// samples, one for each point. kWhole: all samples; whenever the points are full, each two
// neighbours are merged, and each later point takes twice as many samples. So between half of the
// points and all of them are in use, and all but the last cover the same number of samples.
class CurveSeries {
 public:
  enum class Keeps { kLatest, kWhole };

  // Requires: points_max is even, and at least 2.
  CurveSeries(Keeps keeps, size_t points_max);

  // Requires: no earlier than the sample before.
  void Add(const CurveSample& sample);

  // The points, oldest first.
  const std::vector<CurvePoint>& points() const { return points_; }

 private:
  void Halve();

  Keeps keeps_;
  size_t points_max_;
  uint32_t samples_a_point_ = 1;
  std::vector<CurvePoint> points_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_CORE_CURVE_SERIES_H_
