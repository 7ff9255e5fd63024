#ifndef DDPRUN_WORKER_TORCH_SESSION_SAVE_CLOCK_H_
#define DDPRUN_WORKER_TORCH_SESSION_SAVE_CLOCK_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::worker {

// When the next checkpoint is due by the clock, at the end of which step. All ranks must save at
// the same one, and their clocks differ: rank 0's counts, and it says for how many steps nobody
// needs to ask it again. That halves the time that is left each time, so that ranks speak to each
// other some log2(steps) times a checkpoint, however the length of a step changes. Threads: one.
class SaveClock {
 public:
  // Saving is due `interval` after the last time. Zero = never.
  explicit SaveClock(absl::Duration interval = absl::ZeroDuration()) : interval_(interval) {}

  // A checkpoint has just been begun, or training has.
  void Restart(Instant now);

  // A step is done; true: rank 0 must be asked.
  bool StepIsDone();

  // Rank 0's answer: for how many steps it needn't be asked; 0 = save now.
  int64_t StepsToWait(Instant now) const;
  // All ranks take it.
  void TakeAnswer(int64_t steps) { until_asked_ = steps; }

 private:
  absl::Duration interval_;
  Instant began_;
  int64_t steps_ = 0;        // since then
  int64_t until_asked_ = 1;  // steps
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_SAVE_CLOCK_H_
