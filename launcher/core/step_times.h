#ifndef DDPRUN_LAUNCHER_CORE_STEP_TIMES_H_
#define DDPRUN_LAUNCHER_CORE_STEP_TIMES_H_

#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/time/time.h"

namespace ddprun::launcher {

// How long the steps of one worker took, in one phase: counts in buckets whose edges grow by 9 %
// (2^(1/8)), from 16 µs to more than a day, and the time in each. 3 KiB whatever their number.
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

// How long steps take, which may be shorter than the looks at them are apart: what is added is
// gathered over a quarter of a second, so that a look that sees two steps, or came just before one,
// doesn't count as long as it took. For people, and for what is planned in steps.
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

// What a worker may take in a phase.
struct PhaseLimits {
  absl::Duration suspect;  // without a mark for so long: look closer
  absl::Duration overdue;  // a verdict, although the worker is busy
  absl::Duration sample;   // between two looks at a suspect
};

// The limits that follow from the steps seen. Suspect: with fewer than 5 steps, at the first-step
// timeout; with fewer than 100, at 10 median steps + `slack`, and never before 12 of them or twice
// the longest; with fewer than 1,000, at 3 × the longest + 0.5 s; then at 3 × p99.9 + 0.5 s.
// Overdue: at 20 × p99, and never before two samples are over or within kBusyLeast. A sample is 4 ×
// p99.9: two of them take longer than a program that sleeps through steps ten times as long as it
// used to.
PhaseLimits LimitsOf(const StepTimes& times, absl::Duration slack,
                     absl::Duration first_step_timeout);

// Of steps that are counted for a program, which doesn't say what else it does: an evaluation or a
// save is part of a step. Suspect as above for 5 steps and more, whatever their number; at
// kCountedUnlearned before. Overdue, for who may be working, at the first-step timeout or twice the
// other limit.
PhaseLimits LimitsOfCounted(const StepTimes& times, absl::Duration slack,
                            absl::Duration first_step_timeout);

inline constexpr uint64_t kStepsForCounted = 5;
// A suspicion of such a worker ends nothing, so it may come before its steps are known.
inline constexpr absl::Duration kCountedUnlearned = absl::Seconds(4);
inline constexpr absl::Duration kCountedSample = absl::Milliseconds(500);
inline constexpr uint64_t kStepsForMaximum = 100;
inline constexpr uint64_t kStepsForQuantile = 1000;
inline constexpr absl::Duration kSuspectSlack = absl::Milliseconds(500);
// A busy worker is given this much whatever its steps: a restart costs about as much.
inline constexpr absl::Duration kBusyLeast = absl::Seconds(10);
inline constexpr absl::Duration kSampleLeast = absl::Milliseconds(250);
inline constexpr absl::Duration kSampleMost = absl::Seconds(60);
// Of a phase that isn't learned.
inline constexpr absl::Duration kUnlearnedSample = absl::Seconds(5);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_STEP_TIMES_H_
