#ifndef DDPRUN_WORKER_METRICS_STEP_CLOCK_H_
#define DDPRUN_WORKER_METRICS_STEP_CLOCK_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::worker {

// How long steps take. Pure: it is given the time.
class StepClock {
 public:
  explicit StepClock(Instant now) : last_(now) {}

  // A step is done that began at the last one's end, or at the last Restart.
  void Step(Instant now);
  void Restart(Instant now) { last_ = now; }

  // Of the steps since TakeInterval was called last.
  int64_t interval_steps() const { return interval_steps_; }
  absl::Duration interval() const { return interval_; }
  void TakeInterval();

  // Of all steps.
  absl::Duration elapsed() const { return elapsed_; }

  // For so many steps more; nothing before the first step. Late steps weigh more than early ones.
  std::optional<absl::Duration> TimeFor(int64_t steps) const;

 private:
  Instant last_;
  absl::Duration interval_;
  absl::Duration elapsed_;
  absl::Duration smoothed_;  // of one step
  int64_t interval_steps_ = 0;
  int64_t steps_ = 0;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_STEP_CLOCK_H_
