#include "worker/metrics/figures.h"

#include <unistd.h>

#include <algorithm>
#include <bit>
#include <fstream>

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

uint64_t ResidentMemoryBytes() {
  std::ifstream file("/proc/self/statm");
  uint64_t whole = 0;
  uint64_t resident = 0;
  if (!(file >> whole >> resident)) return 0;
  return resident * static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
}

namespace {

// The weight of a step in the expected time, after enough steps: about the last hundred count.
constexpr double kLeastWeight = 0.02;

}  // namespace

void StepClock::Step(Instant now) {
  const absl::Duration took = now - last_;
  last_ = now;
  ++steps_;
  ++interval_steps_;
  interval_ += took;
  elapsed_ += took;
  // A plain mean at first. The first step, with its start-up costs, is forgotten with the second.
  const auto counted = static_cast<double>(std::max<int64_t>(steps_ - 1, 1));
  smoothed_ += (took - smoothed_) * std::max(1 / counted, kLeastWeight);
}

void StepClock::TakeInterval() {
  interval_ = absl::ZeroDuration();
  interval_steps_ = 0;
}

std::optional<absl::Duration> StepClock::TimeFor(int64_t steps) const {
  if (steps_ == 0) return std::nullopt;
  return smoothed_ * steps;
}

}  // namespace ddprun::worker
