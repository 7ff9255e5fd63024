#include "worker/metrics/figures.h"

#include <algorithm>
#include <bit>

namespace ddprun::worker {
namespace {

double Sum(const std::vector<RankFigures>& ranks, double RankFigures::*figure) {
  double sum = 0;
  for (const RankFigures& rank : ranks) sum += rank.*figure;
  return sum;
}

double Most(const std::vector<RankFigures>& ranks, double RankFigures::*figure) {
  double most = 0;
  for (const RankFigures& rank : ranks) most = std::max(most, rank.*figure);
  return most;
}

// The mean loss over the ranks that have one.
double MeanLoss(const std::vector<RankFigures>& ranks) {
  double sum = 0;
  double weights = 0;
  for (const RankFigures& rank : ranks) {
    if (rank.has_loss == 0) continue;
    sum += rank.loss * rank.loss_weight;
    weights += rank.loss_weight;
  }
  return sum / weights;
}

}  // namespace

std::array<double, kRankFigures> ToNumbers(const RankFigures& figures) {
  return std::bit_cast<std::array<double, kRankFigures>>(figures);
}

RankFigures FromNumbers(const std::array<double, kRankFigures>& numbers) {
  return std::bit_cast<RankFigures>(numbers);
}

std::vector<std::pair<std::string, double>> CombineFigures(const std::vector<RankFigures>& ranks) {
  const RankFigures& first = ranks.front();
  std::vector<std::pair<std::string, double>> values;
  if (Sum(ranks, &RankFigures::has_loss) > 0) values.emplace_back("loss", MeanLoss(ranks));
  values.emplace_back("learning_rate", first.learning_rate);
  const double seconds = Most(ranks, &RankFigures::seconds);
  if (seconds > 0) {
    values.emplace_back("samples_per_second", Sum(ranks, &RankFigures::samples) / seconds);
  }
  const double steps = std::max(first.steps, 1.0);
  values.emplace_back("step_seconds", seconds / steps);
  values.emplace_back("data_seconds", Most(ranks, &RankFigures::data_seconds) / steps);
  if (first.has_gradient_norm != 0) values.emplace_back("gradient_norm", first.gradient_norm);
  values.emplace_back("host_memory_bytes", Most(ranks, &RankFigures::host_memory_bytes));
  if (const double bytes = Most(ranks, &RankFigures::gpu_memory_bytes); bytes > 0) {
    values.emplace_back("gpu_memory_bytes", bytes);
  }
  if (const double sum = Sum(ranks, &RankFigures::communication_seconds); sum > 0) {
    values.emplace_back("communication_seconds", sum / static_cast<double>(ranks.size()));
    values.emplace_back("communication_overlap", Sum(ranks, &RankFigures::overlap_seconds) / sum);
  }
  return values;
}

}  // namespace ddprun::worker
