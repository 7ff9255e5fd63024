#include "rendezvous/web/core/curve_book.h"

#include <algorithm>
#include <set>

namespace ddprun::rendezvous {
namespace {

// A step is overdue after this time, or after this many times its usual length.
constexpr absl::Duration kOverdueLeast = absl::Seconds(5);
constexpr int kOverdueSteps = 3;

}  // namespace

std::optional<double> StepRate::Take(const StepReading& reading) {
  const bool goes_on = reading.generation == generation_ && step_.has_value() &&
                       reading.step.has_value() && *reading.step >= *step_;
  if (!goes_on) {
    generation_ = reading.generation;
    step_ = reading.step;
    moved_ = reading.at;
    rate_.reset();
    return rate_;
  }
  const absl::Duration since = reading.at - moved_;
  if (*reading.step > *step_ && since > absl::ZeroDuration()) {
    rate_ = static_cast<double>(*reading.step - *step_) / absl::ToDoubleSeconds(since);
    step_ = reading.step;
    moved_ = reading.at;
  } else if (since > std::max(kOverdueLeast, kOverdueSteps * reading.step_time)) {
    rate_ = 0;
  }
  return rate_;
}

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
