#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_LEARNING_RATE_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_LEARNING_RATE_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace ddprun {

// How the learning rate grows with the global batch.
enum class LearningRateScaling { kNone, kLinear, kSquareRoot };

// "none", "linear" or "sqrt". Errors: INVALID_ARGUMENT — another word; the text lists them.
absl::StatusOr<LearningRateScaling> ParseLearningRateScaling(const std::string& word);

// The learning rate for `global_batch` samples (of all ranks and all accumulated backward passes of
// one step), if `base` was chosen for `base_batch` samples. Both at least 1.
// Source: Goyal et al., Accurate, Large Minibatch SGD (2017): linear, with warm-up.
double ScaledLearningRate(double base, LearningRateScaling scaling, uint64_t base_batch,
                          uint64_t global_batch);

enum class ScheduleKind { kConstant, kLinear, kCosine, kStep };

// "constant", "linear", "cosine" or "step". Errors as above.
absl::StatusOr<ScheduleKind> ParseScheduleKind(const std::string& word);

// A learning rate as a function of the step alone, so that a resumed run needs no state for it.
struct LearningRateSchedule {
  ScheduleKind kind = ScheduleKind::kConstant;
  double peak = 1e-3;         // reached at the end of the warm-up
  int64_t warmup_steps = 0;   // rising linearly; step 0 has peak / (warmup_steps + 1)
  int64_t total_steps = 0;    // linear and cosine end here, at `least`; at least 1 for them
  double least = 0;           // linear, cosine
  int64_t step_every = 1000;  // step: steps between two drops
  double step_factor = 0.1;   // step: the factor of each drop

  // The learning rate for optimizer step `step`, from 0.
  double At(int64_t step) const;
  // OK, or INVALID_ARGUMENT: a count or rate below 0, or a warm-up that is longer than the whole.
  absl::Status Check() const;
};

// Sets the same learning rate for all parameter groups.
void SetLearningRate(torch::optim::Optimizer& optimizer, double rate);

// The learning rates of an optimizer's parameter groups along one schedule: its peak stands for the
// rate that each group was made with, so that a group with a tenth of another's keeps a tenth.
//
//   const GroupLearningRates rates(optimizer);      // before Checkpointer::Restore sets others
//   rates.Set(optimizer, schedule, step);           // at each step
//
// Threads: one. Source: torch.optim.lr_scheduler, where the groups' rates are initial_lr.
class GroupLearningRates {
 public:
  // Notes the groups' rates.
  explicit GroupLearningRates(const torch::optim::Optimizer& optimizer);

  // Sets the rates for optimizer step `step`, from 0. Groups that were added later keep their
  // rates.
  void Set(torch::optim::Optimizer& optimizer, const LearningRateSchedule& schedule,
           int64_t step) const;

 private:
  std::vector<double> peaks_;  // by group
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_LEARNING_RATE_H_
