#ifndef DDPRUN_EXAMPLES_COMMON_TRAINER_H_
#define DDPRUN_EXAMPLES_COMMON_TRAINER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/autocast.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/distributed_sampler.h"
#include "ddprun/grad_scaler.h"
#include "ddprun/learning_rate.h"
#include "ddprun/metrics.h"
#include "ddprun/power_sgd.h"
#include "ddprun/zero_optimizer.h"
#include "examples/common/journal.h"
#include "examples/common/prefetcher.h"
#include "examples/common/task.h"
#include "examples/common/training_options.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace ddprun::examples {

// Trains a task as its options say: the whole of a training program but for model and data.
//
// No sample is seen twice in an epoch, and none is left out but the last ones that don't fill a
// step, whatever happens: progress is counted in samples of all ranks, saved with the model, and
// each epoch's order is a function of seed and epoch. So a job goes on where its newest checkpoint
// stands, also with another number of workers. Threads: one.
class Trainer {
 public:
  // Requires: options, context and task outlive it.
  Trainer(const TrainingOptions& options, Context& context, Task& task, Journal journal);

  // Resumes, trains to the end, or until all ranks are told to stop, saves, evaluates, and prints
  // how it goes, on rank 0. Errors: those of its parts. A collective.
  absl::Status Run();

 private:
  absl::Status Prepare();
  absl::Status MakeOptimizer();
  absl::Status Resume();
  std::unique_ptr<Checkpointer> MakeCheckpointer(const std::string& directory);
  absl::StatusOr<std::optional<TrainingProgress>> RestoreElsewhere();
  absl::Status BeginMetrics();
  LearningRateSchedule Schedule() const;
  // Samples of all ranks in one step.
  int64_t GlobalBatch() const;
  int64_t StepsPerEpoch() const;
  // Place in the schedule: the step number, at the present number of workers.
  int64_t SchedulePlace() const;
  bool Done() const;
  // This rank's batch of the backward pass whose samples, all ranks' together, begin there.
  Batch LoadBatch(const std::vector<int64_t>& order, int64_t place) const;

  absl::Status TrainEpoch();
  absl::Status TrainStep(Prefetcher& batches);
  torch::Tensor LossOf(Batch batch);
  void Backward(Prefetcher& batches);
  absl::Status StepOptimizer();
  // The norm before clipping; unset: not measured, or beyond fp16's range.
  absl::StatusOr<std::optional<double>> Clip();
  // Reads the last step's loss: an error when it isn't finite.
  absl::Status CheckStep();
  absl::Status NotifyStep();
  absl::Status SaveNow();
  // A sentence for people.
  absl::StatusOr<std::string> Evaluate();

  const TrainingOptions& options_;
  Context& context_;
  Task& task_;
  const Journal journal_;
  const std::shared_ptr<torch::nn::Module> model_;
  DistributedSampler sampler_;  // of the whole order; LoadBatch deals it out
  MixedPrecision precision_ = MixedPrecision::kNo;
  LearningRateSchedule schedule_;
  std::optional<GroupLearningRates> rates_;
  // Made once the model is where it belongs. zero_: with a zero_stage, the same as optimizer_.
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  ZeroOptimizer* zero_ = nullptr;
  std::unique_ptr<GradScaler> scaler_;
  std::shared_ptr<PowerSgd> power_sgd_;           // null = another hook
  std::unique_ptr<DistributedDataParallel> ddp_;  // null with zero_stage 2
  std::unique_ptr<Checkpointer> checkpointer_;    // null = none
  std::unique_ptr<Metrics> metrics_;
  TrainingProgress progress_;
  StepMetrics step_;  // what is known of the current one
  // The last step's, of all its passes [], on the model's device; undefined before the first step.
  torch::Tensor loss_;
  bool stepped_ = true;  // the last step; false: it was left out
  bool stopped_ = false;
};

}  // namespace ddprun::examples

#endif  // DDPRUN_EXAMPLES_COMMON_TRAINER_H_
