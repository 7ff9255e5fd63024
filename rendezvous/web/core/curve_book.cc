#include "rendezvous/web/core/curve_book.h"

#include <algorithm>
#include <set>

namespace ddprun::rendezvous {
namespace {

// Tolerance: a page that asks once a second comes a little early or late.
constexpr absl::Duration kEarly = absl::Milliseconds(200);

}  // namespace

void CurveBook::Take(Instant now, const std::vector<JobReading>& readings) {
  if (taken_.has_value() && now - *taken_ < kPeriod - kEarly) return;
  taken_ = now;
  std::set<std::string> present;
  for (const JobReading& reading : readings) present.insert(reading.run_id);
  std::erase_if(jobs_, [&](const auto& job) { return !present.contains(job.first); });
  for (const JobReading& reading : readings) {
    if (!jobs_.contains(reading.run_id) && jobs_.size() >= kJobsMax) continue;
    JobCurves& curves = jobs_[reading.run_id];
    const CurveSample sample{.at = now,
                             .figures = {curves.step_rate.Take(reading.steps), reading.loss,
                                         reading.sample_rate, reading.gpu_busy}};
    curves.latest.Add(sample);
    curves.whole.Add(sample);
  }
}

absl::Duration CurveBook::PauseAfter(absl::Duration cost) {
  return std::clamp(kShare * cost, kPeriod, kPauseMax);
}

}  // namespace ddprun::rendezvous
