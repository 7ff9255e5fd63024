#ifndef DDPRUN_BASE_TRAINING_REPORT_H_
#define DDPRUN_BASE_TRAINING_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>

// What workers report of their training, for people who watch: in the page of progress
// (docs/PROGRESS.md), and from there with the heartbeats.
namespace ddprun {

// Offsets in the page of progress, worker → agent. The figures are doubles of IEEE 754.
inline constexpr size_t kTrainingLossOffset = 448;
inline constexpr size_t kTrainingRateOffset = 456;  // samples a second
// Which of them are there: bits of a 64-bit word, each set once its figure is stored.
inline constexpr size_t kTrainingToldOffset = 464;
inline constexpr uint64_t kTrainingToldLoss = 1;
inline constexpr uint64_t kTrainingToldRate = 2;

// Of some workers together.
struct TrainingReport {
  std::optional<double> loss;                // mean of those that report one; NaN where one is
  uint32_t loss_workers = 0;                 // how many those are
  std::optional<double> samples_per_second;  // sum over those that report it

  bool operator==(const TrainingReport&) const = default;
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_TRAINING_REPORT_H_
