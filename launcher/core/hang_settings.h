#ifndef DDPRUN_LAUNCHER_CORE_HANG_SETTINGS_H_
#define DDPRUN_LAUNCHER_CORE_HANG_SETTINGS_H_

#include "absl/time/time.h"

namespace ddprun::launcher {

// How this agent watches its workers.
struct HangSettings {
  // --hang_detection: watch workers that mark their progress.
  bool watch_marks = true;
  // The limit of a phase that isn't learned yet.
  absl::Duration first_step_timeout = absl::Seconds(600);
  // How much longer than ten median steps a worker may be silent before it is suspect, where few
  // steps are known or steps are counted for a program. With steps of up to 100 ms and two samples
  // after it, the worker is named within 5 s.
  absl::Duration few_steps_slack = absl::Milliseconds(2500);
  // How long a worker that holds up the others may make no progress before it is ended without a
  // proof that it can't go on: --hang_timeout if given. Else this or the time-out of the worker's
  // process groups, whichever is longer, because torch ends the worker itself then (NCCL's default
  // is 600 s). Doubles when a worker was ended so, because that worker may only have been slow.
  absl::Duration end_after = absl::Seconds(600);
  // An explicit --hang_timeout, which also ends workers that mark nothing and neither compute nor
  // read nor write for this long; zero = none was given.
  absl::Duration hang_timeout;
  // The longest time without progress after which a worker of this job has gone on.
  absl::Duration survived;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_HANG_SETTINGS_H_
