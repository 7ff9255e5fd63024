#ifndef DDPRUN_WORKER_TORCH_SESSION_SAVER_H_
#define DDPRUN_WORKER_TORCH_SESSION_SAVER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/instant.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/training_options.h"

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

// Decides when a Session saves, and what an error of saving means.
//
// Invariant: all ranks answer alike, because saving is a collective. Threads: one.
class Saver {
 public:
  // Requires: `options` outlive it.
  explicit Saver(const TrainingOptions& options) : options_(options) {}

  // From here on it saves. Null: it doesn't.
  void SaveWith(std::unique_ptr<Checkpointer> checkpointer) {
    checkpointer_ = std::move(checkpointer);
  }
  Checkpointer* checkpointer() const { return checkpointer_.get(); }  // null: nothing is saved

  // Some ranks may be new: they don't know what is saved already.
  void BeginGeneration();
  // Training began with a checkpoint in another folder than the own one.
  void BeganElsewhere() { began_elsewhere_ = true; }
  // Whether the own folder has no checkpoint that this training goes on from. Params: step: the
  // last one that was done. False at later calls.
  bool HasNone(int64_t step) { return std::exchange(began_elsewhere_, false) || step == 0; }

  // Call it after each step. Whether a checkpoint is due; at some steps a collective, with
  // --checkpoint_minutes.
  absl::StatusOr<bool> IsDue(Context& context, int64_t step);
  // Whether a model with this score is the best so far. First waits until all that was begun is
  // written. A collective. False if nothing is saved.
  absl::StatusOr<bool> IsBest(double score);
  // Whether Save would save: without a score, a state that is saved already isn't saved again.
  bool Saves(const TrainingProgress& progress, std::optional<double> score) const {
    return checkpointer_ != nullptr && (saved_ != progress || score.has_value());
  }
  // Begins to save. Requires: Saves().
  absl::Status Save(const TrainingProgress& progress, std::optional<double> score);
  // Waits until all that was begun is written.
  absl::Status Wait();

 private:
  // Returns OK in place of an error if --checkpoint_errors says that training goes on.
  absl::Status Tolerate(absl::Status saved_or_not) const;

  const TrainingOptions& options_;
  std::unique_ptr<Checkpointer> checkpointer_;
  SaveClock clock_;
  std::optional<TrainingProgress> saved_;  // the last one, in this generation
  bool began_elsewhere_ = false;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_SAVER_H_
