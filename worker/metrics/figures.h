#ifndef DDPRUN_WORKER_METRICS_FIGURES_H_
#define DDPRUN_WORKER_METRICS_FIGURES_H_

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::worker {

// A rank's figures of the steps since the record before. All have one type, so that ranks can
// exchange the struct as numbers.
struct RankFigures {
  double has_loss = 0;     // 0 or 1, as all has_… fields
  double loss = 0;         // mean of the samples, or of the steps
  double loss_weight = 1;  // the number of samples or steps
  double learning_rate = 0;
  double steps = 0;
  double seconds = 0;       // of all these steps
  double samples = 0;       // in all these steps
  double data_seconds = 0;  // in all these steps
  double has_gradient_norm = 0;
  double gradient_norm = 0;          // of the last step
  double host_memory_bytes = 0;      // resident, now
  double gpu_memory_bytes = 0;       // most that tensors had so far; 0 = no GPU
  double communication_seconds = 0;  // of one step; 0 = not known
  double overlap_seconds = 0;        // the part of it beside the backward pass
};

inline constexpr size_t kRankFigures = sizeof(RankFigures) / sizeof(double);

std::array<double, kRankFigures> ToNumbers(const RankFigures& figures);
RankFigures FromNumbers(const std::array<double, kRankFigures>& numbers);

// A record's values, by the names of docs/METRICS.md: combined over all ranks, or rank 0's if they
// are the same on all. Requires: at least one rank, rank 0 first.
std::vector<std::pair<std::string, double>> CombineFigures(const std::vector<RankFigures>& ranks);

// The resident memory of this process, in bytes; 0 = unknown. Source: statm in proc(5).
uint64_t ResidentMemoryBytes();

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

#endif  // DDPRUN_WORKER_METRICS_FIGURES_H_
