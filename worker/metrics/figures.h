#ifndef DDPRUN_WORKER_METRICS_FIGURES_H_
#define DDPRUN_WORKER_METRICS_FIGURES_H_

#include <array>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::worker {

// What a rank knows of the steps since the record before. Numbers only, of one type: ranks exchange
// it as it is.
struct RankFigures {
  double has_loss = 0;     // 0 or 1, as the others of this kind
  double loss = 0;         // mean of the samples, or of the steps
  double loss_weight = 1;  // how many
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
  double overlap_seconds = 0;        // of it
};

inline constexpr size_t kRankFigures = sizeof(RankFigures) / sizeof(double);

std::array<double, kRankFigures> ToNumbers(const RankFigures& figures);
RankFigures FromNumbers(const std::array<double, kRankFigures>& numbers);

// A record's values, by the names of docs/METRICS.md: those of all ranks together, and rank 0's
// where all have the same. Requires: at least one rank, and rank 0's first.
std::vector<std::pair<std::string, double>> CombineFigures(const std::vector<RankFigures>& ranks);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_FIGURES_H_
