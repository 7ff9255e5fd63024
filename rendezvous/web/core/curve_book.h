#ifndef DDPRUN_RENDEZVOUS_WEB_CORE_CURVE_BOOK_H_
#define DDPRUN_RENDEZVOUS_WEB_CORE_CURVE_BOOK_H_

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"
#include "rendezvous/web/core/curve_series.h"
#include "rendezvous/web/core/step_rate.h"

namespace ddprun::rendezvous {

// What is taken down of a job at one look. `steps.at`: when its nodes told.
struct JobReading {
  std::string run_id;
  StepReading steps;
  std::optional<double> loss;
  std::optional<double> sample_rate;  // samples a second
  std::optional<double> gpu_busy;     // 0 to 1, the mean of its GPUs
};

// The curves of one job: the last ten minutes in full, and all of it in the same number of points.
struct JobCurves {
  static constexpr size_t kPoints = 300;

  StepRate step_rate;
  CurveSeries latest{CurveSeries::Keeps::kLatest, kPoints};
  CurveSeries whole{CurveSeries::Keeps::kWhole, kPoints};
};

// Remembers the curves of a service's jobs: 45 KiB for each, and of kJobsMax at most. Jobs that the
// service has forgotten are forgotten here.
//
// Beside the page, not in the service's core: figures decide nothing, and there they would have to
// be proved, recorded and recovered. A figure of a point is a mean, and one NaN makes it NaN,
// because a loss that has diverged must not be thinned away.
class CurveBook {
 public:
  static constexpr size_t kJobsMax = 64;
  // Between two looks that are taken down.
  static constexpr absl::Duration kPeriod = absl::Seconds(2);
  static constexpr absl::Duration kPauseMax = absl::Minutes(1);
  // Asking for a status takes at most this part of the time.
  static constexpr int kShare = 100;

  // Takes down how far the service's jobs are; what comes sooner than kPeriod is left out.
  void Take(Instant now, const std::vector<JobReading>& readings);

  // How long to wait before asking again, when nobody else asks. Params: cost: what the last answer
  // took.
  static absl::Duration PauseAfter(absl::Duration cost);

  // By run id.
  const std::map<std::string, JobCurves>& jobs() const { return jobs_; }

 private:
  std::optional<Instant> taken_;
  std::map<std::string, JobCurves> jobs_;
};

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_WEB_CORE_CURVE_BOOK_H_
