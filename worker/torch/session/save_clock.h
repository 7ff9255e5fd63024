#ifndef DDPRUN_WORKER_TORCH_SESSION_SAVE_CLOCK_H_
#define DDPRUN_WORKER_TORCH_SESSION_SAVE_CLOCK_H_

#include <cstdint>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::worker {

// Decides when the next checkpoint is due by the clock. All ranks must save at the end of the same
// step, and their clocks differ, so rank 0's counts. When it is asked, rank 0 says for how many
// steps it needn't be asked again: those of half the time that is left. So ranks exchange about
// log2(steps) messages a checkpoint, however the length of a step changes. Threads: one.
class SaveClock {
 public:
  // Saving is due `interval` after the last time. Zero = never.
  explicit SaveClock(absl::Duration interval = absl::ZeroDuration()) : interval_(interval) {}

  // Call it when a checkpoint, or training, has just been begun.
  void Restart(Instant now);

  // Call it after each step. Returns whether rank 0 must be asked.
  bool StepIsDone();

  // Rank 0's answer: for how many steps it needn't be asked; 0 = save now.
  int64_t StepsToWait(Instant now) const;
  // Call it with rank 0's answer, on all ranks.
  void TakeAnswer(int64_t steps) { until_asked_ = steps; }

 private:
  absl::Duration interval_;
  Instant began_;
  int64_t steps_ = 0;        // since began_
  int64_t until_asked_ = 1;  // steps
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_SAVE_CLOCK_H_
