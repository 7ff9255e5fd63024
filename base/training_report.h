#ifndef DDPRUN_BASE_TRAINING_REPORT_H_
#define DDPRUN_BASE_TRAINING_REPORT_H_

#include <cstddef>
#include <cstdint>
#include <optional>

// What workers report of their training, for people who watch: in the page of progress
// (docs/PROGRESS.md), and from there with the heartbeats.
namespace ddprun {

// Offsets in the progress page, written by the worker. The figures are IEEE 754 doubles.
inline constexpr size_t kTrainingLossOffset = 448;
inline constexpr size_t kTrainingRateOffset = 456;  // samples a second
// Which figures are set: bits of a 64-bit word, each set after its figure is stored.
inline constexpr size_t kTrainingToldOffset = 464;
inline constexpr uint64_t kTrainingToldLoss = 1;
inline constexpr uint64_t kTrainingToldRate = 2;

// The figures of some workers together.
struct TrainingReport {
  std::optional<double> loss;                // mean of the reported ones; NaN if one of them is
  uint32_t loss_workers = 0;                 // workers that report one
  std::optional<double> samples_per_second;  // sum of the reported ones

  bool operator==(const TrainingReport&) const = default;
};

}  // namespace ddprun

#endif  // DDPRUN_BASE_TRAINING_REPORT_H_
