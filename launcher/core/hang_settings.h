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
  // What a step may take beside ten steps before its worker is named, where few are known or steps
  // are counted for a program. With two samples after it, within 5 s.
  absl::Duration few_steps_slack = absl::Milliseconds(2500);
  // How long a worker that holds up the others may make no progress before it is ended, if nothing
  // proves that it can't go on: --hang_timeout, or this and never less than the time-out of the
  // worker's process groups, after which torch ends it itself (NCCL's default is the same). Grows
  // with each worker that was ended so, because it may have been none that hangs.
  absl::Duration end_after = absl::Seconds(600);
  // An explicit --hang_timeout, which also ends workers that mark nothing and do nothing for so
  // long; zero = none was given.
  absl::Duration hang_timeout;
  // The longest time without progress after which a worker of this job has gone on.
  absl::Duration survived;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_HANG_SETTINGS_H_
