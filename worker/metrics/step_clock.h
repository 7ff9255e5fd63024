#ifndef DDPRUN_WORKER_METRICS_STEP_CLOCK_H_
#define DDPRUN_WORKER_METRICS_STEP_CLOCK_H_

#include <cstdint>
#include <optional>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::worker {

// Measures how long steps take. Pure: the caller passes the time.
class StepClock {
 public:
  explicit StepClock(Instant now) : last_(now) {}

  // Call it at the end of a step that began at the last step's end, or at the last Restart.
  void Step(Instant now);
  void Restart(Instant now) { last_ = now; }

  // The number and the time of the steps since the last TakeInterval.
  int64_t interval_steps() const { return interval_steps_; }
  absl::Duration interval() const { return interval_; }
  void TakeInterval();

  // The time of all steps.
  absl::Duration elapsed() const { return elapsed_; }

  // The expected time of `steps` more steps, in which late steps weigh more than early ones;
  // nullopt before the first step.
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
