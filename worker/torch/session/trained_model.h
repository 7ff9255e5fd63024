#ifndef DDPRUN_WORKER_TORCH_SESSION_TRAINED_MODEL_H_
#define DDPRUN_WORKER_TORCH_SESSION_TRAINED_MODEL_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/autocast.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/exponential_moving_average.h"
#include "ddprun/grad_scaler.h"
#include "ddprun/learning_rate.h"
#include "ddprun/metrics.h"
#include "ddprun/optimizer_kind.h"
#include "ddprun/power_sgd.h"
#include "ddprun/training_options.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/session/checkpointed_parts.h"
#include "worker/torch/session/gradient_watch.h"

namespace ddprun::worker {

// One module of a Session, and what trains it. Most Sessions have one module, without a name. With
// several, as for a GAN, each is averaged over the ranks and stepped for itself.
struct SessionPart {
  std::string name;  // "" = the only one
  std::shared_ptr<torch::nn::Module> module;
  OptimizerKind kind;
  std::vector<ParameterGroup> groups;
  torch::optim::Optimizer* optimizer = nullptr;  // the model's, or one of its set
  std::vector<double> rate_factors;              // of the schedule's peak, by its groups
  std::optional<GroupLearningRates> rates;
  std::unique_ptr<DistributedDataParallel> ddp;  // null with zero_stage 2 and up
  std::unique_ptr<BucketsCheckpoint> buckets;    // of `ddp`, from Begin on
  std::unique_ptr<GradientWatch> watch;          // of this generation
  std::optional<TrainedSet> trained;             // from Begin on
  OptimizerSteps steps;
  bool has_gradients = false;  // of this pass or earlier ones, which no step has used
  bool is_averaged = false;    // these gradients are, over all ranks
  bool has_stepped = false;    // since the scaler's last Update()
  std::unique_ptr<DistributedDataParallel::NoSync> no_sync;  // not of the step's last pass
};

// The modules of a Session, combined into one, and what trains them: optimizers, averages over the
// ranks, learning rates. Decides which gradients add up, when they are averaged, and which
// optimizer steps with them.
//
//   Add, Assemble, Begin              once
//   Divide, Connect                   in each generation
//   OpenPass, AddGradients, EndPass   for each backward pass
//   FinishBackward, Step              at the end of a step
//
// Threads: one. Requires: options and the generation's context outlive it.
class TrainedModel {
 public:
  explicit TrainedModel(const TrainingOptions& options) : options_(options) {}

  // Errors: INVALID_ARGUMENT — names that can't name several modules.
  absl::Status Add(SessionPart part);
  // Makes one module of all parts. Errors: FAILED_PRECONDITION — there is none. INVALID_ARGUMENT —
  // options that don't fit several.
  absl::Status Assemble();
  // Moves it to the device, and makes the optimizers; ZeRO's is made by Divide.
  absl::Status Begin(torch::Device device);
  // Takes the schedule for the present number of workers. Errors: LearningRateSchedule::Check's.
  absl::Status Plan(const LearningRateSchedule& schedule);
  // In place of the schedule.
  void LearnWith(std::function<double(int64_t step)> rate_of) { rate_of_ = std::move(rate_of); }

  // With ZeRO: divides the state among the ranks of this generation; the first one makes it.
  // init_sync: rank 0's parameters go to all ranks. Then makes the average, if there is to be one.
  absl::Status Divide(Context& context, bool init_sync);
  // Averages gradients over this generation's ranks. equal: they have got the same state from each
  // other.
  absl::Status Connect(Context& context, bool equal);
  // Leaves the generation, and drops what was done of a step. In an order in which objects that are
  // made from the context die before its group.
  void LetGo();

  // Sets the rates of the step that begins, and returns the first group's. Params: place: in the
  // schedule. Errors: INVALID_ARGUMENT — the program's function answers no rate.
  absl::StatusOr<double> SetRates(int64_t place);
  void ZeroGradients();
  // Errors: FAILED_PRECONDITION — the program has stepped an optimizer itself, or trains a
  // parameter that it had frozen before Begin.
  absl::Status CheckOptimizers(int64_t step) const;

  // is_last: of the step's passes; gradients of the others aren't averaged.
  void OpenPass(bool is_last);
  // Between these the program's operators run under mixed precision.
  void BeginForward() { autocast_.emplace(device_, precision_); }
  void EndForward() { autocast_.reset(); }
  // Adds a loss' gradients. Params: of: null = all parts. weight: of the loss. Throws as LibTorch.
  // Errors: FAILED_PRECONDITION — these parts have no part in the loss.
  absl::Status AddGradients(const torch::Tensor& loss, const SessionPart* of, double weight);
  void EndPass();

  // Averages gradients of passes before the step's last one, if that one has added none to this
  // part; then a collective. Before StepPart; FinishBackward does so for all parts.
  static absl::Status AverageEarlier(Context& context, SessionPart& part);
  // A collective. Returns whether buckets changed.
  absl::StatusOr<bool> FinishBackward(Context& context);
  // Clips this part's gradients and has its optimizer step. Returns whether it stepped: not if
  // gradients overflowed in fp16. Adds to metrics' gradient norm.
  absl::StatusOr<bool> StepPart(SessionPart& part, StepMetrics& metrics);
  // The same for all parts that have gradients. is_done: an optimizer has stepped with a function.
  // has_stepped: an optimizer has stepped in this step; also the result.
  absl::Status Step(bool is_done, StepMetrics& metrics, bool& has_stepped);

  std::vector<SessionPart>& parts() { return parts_; }
  const std::vector<SessionPart>& parts() const { return parts_; }
  bool HasSeveral() const { return parts_.size() > 1; }
  // Whether optimizers may step before the end of a step: several, or one that asks for the loss.
  bool MayStepEarly() const;
  // Whether an optimizer may ask for the loss during its step.
  bool TakesFunction() const;
  // The states of all this beside module and optimizer, by their names in checkpoints, without
  // PowerSgd's.
  std::map<std::string, CheckpointedState*> States() const;
  const std::shared_ptr<torch::nn::Module>& module() const { return module_; }  // null: not yet
  torch::optim::Optimizer* optimizer() const { return optimizer_.get(); }       // of all parts
  ZeroOptimizer* zero() const { return zero_; }
  ExponentialMovingAverage* average() const { return average_.get(); }
  GradScaler& scaler() const { return *scaler_; }
  PowerSgd* power_sgd() const { return power_sgd_.get(); }
  PowerSgdOfAll* power_sgd_of_all() const { return power_sgd_of_all_.get(); }
  const LearningRateSchedule& schedule() const { return schedule_; }

 private:
  // Before a part's gradients are scaled: allows a second step of it in one step of the Session.
  absl::Status RenewScale(const SessionPart& part);
  absl::Status UpdateScale();
  absl::Status MakeOptimizers();
  // Null with a zero_stage: Divide makes it.
  absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> MakeOptimizer(SessionPart& part);
  absl::StatusOr<std::vector<AnyOptimizer::Group>> GroupsOf(SessionPart& part,
                                                            std::vector<double>& decays) const;
  void PlanRates();
  // Sets the rate of each of its groups. rate: of a group with a factor of 1.
  static void SetRate(SessionPart& part, double rate);

  const TrainingOptions& options_;
  std::vector<SessionPart> parts_;
  std::shared_ptr<torch::nn::Module> module_;
  torch::DeviceType device_ = torch::kCPU;
  MixedPrecision precision_ = MixedPrecision::kNo;
  LearningRateSchedule schedule_;
  std::function<double(int64_t step)> rate_of_;  // null: the schedule
  // Made when the model is on its device. zero_: the same object as optimizer_, with a zero_stage.
  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  ZeroOptimizer* zero_ = nullptr;
  std::function<absl::StatusOr<std::unique_ptr<ZeroOptimizer>>(Context& context, bool init_sync)>
      make_zero_;
  std::unique_ptr<ExponentialMovingAverage> average_;  // null = none
  std::unique_ptr<GradScaler> scaler_;
  std::shared_ptr<PowerSgd> power_sgd_;              // null = another hook
  std::unique_ptr<PowerSgdOfAll> power_sgd_of_all_;  // null with it

  // The current pass.
  std::optional<Autocast> autocast_;
  bool averages_ = false;  // it is the step's last one
  // Gradients are added up here until the last backward pass, which averages them.
  std::optional<ZeroOptimizer::NoSync> zero_no_sync_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_TRAINED_MODEL_H_
