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
  // What a step that is counted for a program may take beside ten steps; grows with each hang that
  // was found so, because that may have been none. With two samples after it, within 5 s.
  absl::Duration counted_slack = absl::Milliseconds(2500);
  // --hang_timeout: how long a worker that never marks may do nothing; zero = it isn't watched.
  absl::Duration hang_timeout;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_HANG_SETTINGS_H_
