#ifndef DDPRUN_WORKER_METRICS_FIGURES_H_
#define DDPRUN_WORKER_METRICS_FIGURES_H_

#include <array>
#include <string>
#include <utility>
#include <vector>

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

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_FIGURES_H_
