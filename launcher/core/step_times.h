#ifndef DDPRUN_LAUNCHER_CORE_STEP_TIMES_H_
#define DDPRUN_LAUNCHER_CORE_STEP_TIMES_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::launcher {

// A histogram of the step times of one worker in one phase: counts in buckets whose edges grow by
// 9 % (2^(1/8)), from 16 µs to more than a day, and the time in each. Always 3 KiB.
//
// Older steps fade: all counts are halved when 16,384 are held, so that a program whose steps grow
// longer is learned anew. Pure; one thread.
class StepTimes {
 public:
  // `count` steps that took `each`.
  void Add(absl::Duration each, uint64_t count = 1);

  // Steps seen since the beginning; fading doesn't lower it.
  uint64_t seen() const { return seen_; }
  // The upper edge of the bucket that holds the quantile; zero when nothing was seen. Params: `q`
  // within (0, 1]; 1 is the longest that is held.
  absl::Duration Quantile(double q) const;
  // The mean of the bucket that holds the median; zero when nothing was seen. For people and
  // comparisons: by upper edges, equal nodes whose steps take 101 and 102 ms might differ by 9 %.
  absl::Duration Median() const;

 private:
  static constexpr size_t kBuckets = 264;

  // The bucket that holds a quantile; kBuckets when nothing was seen.
  size_t BucketOf(double q) const;

  std::array<uint32_t, kBuckets> counts_{};
  std::array<double, kBuckets> microseconds_{};  // that the steps of a bucket took together
  uint64_t held_ = 0;
  uint64_t seen_ = 0;
};

// The step time of one worker, also of steps that are shorter than the time between two looks.
// Steps are gathered over a quarter of a second, so that a look that sees two steps, or comes just
// before a step ends, doesn't distort the result. For people, and for planning in steps (R14).
// Pure; one thread.
class StepPace {
 public:
  // `count` steps, at least 1, took `together`.
  void Add(absl::Duration together, uint64_t count);
  // Zero when too little was seen.
  absl::Duration Median() const { return times_.Median(); }

 private:
  StepTimes times_;
  absl::Duration gathered_;
  uint64_t gathered_steps_ = 0;
};

// How long a worker may be silent in a phase.
struct PhaseLimits {
  absl::Duration suspect;  // silent for this long: take samples
  absl::Duration overdue;  // silent for this long: a verdict is possible although it is busy
  absl::Duration sample;   // time between two samples of a suspect
};

// The limits that follow from the steps seen. Suspect: with fewer than 5 steps, at the first-step
// timeout; with fewer than 100, at 10 median steps + `slack`, and never before 12 of them or twice
// the longest; with fewer than 1,000, at 3 × the longest + 0.5 s; then at 3 × p99.9 + 0.5 s.
// Overdue: at 20 × p99, and never before two samples are over or within kBusyLeast. A sample is 4 ×
// p99.9: two of them take longer than a program that sleeps through steps ten times as long as it
// used to.
PhaseLimits LimitsOf(const StepTimes& times, absl::Duration slack,
                     absl::Duration first_step_timeout);

// The limits for steps that are counted for a program. The program doesn't mark what else it does,
// so an evaluation or a save is part of a step. Suspect: as above for fewer than 100 steps, however
// many there are, and with fewer than 5 at kCountedUnlearned. Overdue: at the first-step timeout or
// twice the other limit, whichever is longer, because the worker may be working.
PhaseLimits LimitsOfCounted(const StepTimes& times, absl::Duration slack,
                            absl::Duration first_step_timeout);

inline constexpr uint64_t kStepsForCounted = 5;
// A suspicion of such a worker ends nothing, so it may come before the worker's steps are known.
inline constexpr absl::Duration kCountedUnlearned = absl::Seconds(4);
inline constexpr absl::Duration kCountedSample = absl::Milliseconds(500);
inline constexpr uint64_t kStepsForMaximum = 100;
inline constexpr uint64_t kStepsForQuantile = 1000;
inline constexpr absl::Duration kSuspectSlack = absl::Milliseconds(500);
// The least overdue limit of a busy worker: a restart costs about as much.
inline constexpr absl::Duration kBusyLeast = absl::Seconds(10);
inline constexpr absl::Duration kSampleLeast = absl::Milliseconds(250);
inline constexpr absl::Duration kSampleMost = absl::Seconds(60);
// Time between samples in a phase that isn't learned.
inline constexpr absl::Duration kUnlearnedSample = absl::Seconds(5);

// The workers of a generation on this node that still run when others have ended well. A thread
// that is never joined keeps a trained process alive forever, without an error. Laggards are
// reported when no worker of the node has ended for kLaggardsAfter, and once more when one of
// several is left. A worker that evaluates or uploads for an hour is reported, too, so a report
// must have no effect. Pure; one thread.
class Laggards {
 public:
  static constexpr absl::Duration kLaggardsAfter = absl::Seconds(30);

  // A generation begins.
  void Begin(uint32_t worker_count);
  // A worker has ended. Unless `well`, no laggard of this generation is reported any more.
  void OnEnded(Instant now, uint32_t local_rank, bool well);
  // The workers are being stopped.
  void Stop();
  // When OnTimer is wanted; infinite = not at all.
  Instant Deadline() const { return due_; }
  // The local ranks to report now.
  std::vector<uint32_t> OnTimer(Instant now);

 private:
  std::vector<bool> runs_;  // by local rank; empty = no generation, or it is stopped
  size_t named_ = 0;        // how many were reported last; 0 = none so far
  Instant due_ = Instant::Infinite();
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_STEP_TIMES_H_
