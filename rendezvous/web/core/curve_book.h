#ifndef DDPRUN_RENDEZVOUS_WEB_CORE_CURVE_BOOK_H_
#define DDPRUN_RENDEZVOUS_WEB_CORE_CURVE_BOOK_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/web/core/curve_series.h"

namespace ddprun::rendezvous {

// The step of a job at one moment.
struct StepReading {
  Instant at;
  uint64_t generation = 0;
  std::optional<uint64_t> step;  // of the rank that is furthest back; nullopt = none marks
  absl::Duration step_time;      // of the slowest node; zero = unknown
};

// Steps a second as they were really done, so that a save, a wait for data or a hang shows; a
// median step shows none of them. If steps last longer than the time between two readings, the rate
// stays until the next step is overdue; then it is 0.
class StepRate {
 public:
  // The rate at this reading; nullopt = unknown: no marks, or the first reading of a generation.
  // Requires: readings in the order of their time.
  std::optional<double> Take(const StepReading& reading);

 private:
  uint64_t generation_ = 0;
  std::optional<uint64_t> step_;
  Instant moved_;  // when step_ was first read
  std::optional<double> rate_;
};

// One reading of a job. `steps.at`: when its nodes reported.
struct JobReading {
  std::string run_id;
  StepReading steps;
  std::optional<double> loss;
  std::optional<double> sample_rate;  // samples a second
  std::optional<double> gpu_busy;     // 0 to 1, the mean of its GPUs
};

// The curves of one job: the last ten minutes in full, and the whole job in the same number of
// points.
struct JobCurves {
  static constexpr size_t kPoints = 300;

  StepRate step_rate;
  CurveSeries latest{CurveSeries::Keeps::kLatest, kPoints};
  CurveSeries whole{CurveSeries::Keeps::kWhole, kPoints};
};

// Keeps the curves of a service's jobs: 45 KiB each, for kJobsMax jobs at most. Jobs that the
// service has forgotten are dropped.
//
// The curves are kept by the page's server and not by the service's core: figures decide nothing,
// and in the core they would have to be proved, recorded and recovered. A point has the mean of its
// samples, so one NaN makes it NaN, and a loss that has diverged stays visible.
class CurveBook {
 public:
  static constexpr size_t kJobsMax = 64;
  // Time between two readings that are kept.
  static constexpr absl::Duration kPeriod = absl::Seconds(2);
  static constexpr absl::Duration kPauseMax = absl::Minutes(1);
  // Asking for a status takes at most 1/kShare of the time.
  static constexpr int kShare = 100;

  // Adds readings of the service's jobs. Readings that come sooner than kPeriod are left out.
  void Take(Instant now, const std::vector<JobReading>& readings);

  // How long to wait before asking again if no client asks. Params: cost: how long the last answer
  // took.
  static absl::Duration PauseAfter(absl::Duration cost);

  // The curves by run id.
  const std::map<std::string, JobCurves>& jobs() const { return jobs_; }

 private:
  std::optional<Instant> taken_;
  std::map<std::string, JobCurves> jobs_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_CORE_CURVE_BOOK_H_
