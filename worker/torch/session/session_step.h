#ifndef DDPRUN_WORKER_TORCH_SESSION_SESSION_STEP_H_
#define DDPRUN_WORKER_TORCH_SESSION_SESSION_STEP_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/dataset.h"
#include "ddprun/distributed_data_parallel.h"
#include "ddprun/learning_rate.h"
#include "ddprun/optimizer_kind.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/session/checkpointed_parts.h"
#include "worker/torch/session/gradient_watch.h"
#include "worker/torch/session/own_states.h"

namespace ddprun::worker {

// The loss is read every so many steps, for the metrics and to check that it is finite.
inline constexpr int64_t kNotifyEvery = 10;

// The error of a program that calls methods in a wrong order.
inline absl::Status Misuse(const std::string& what) { return absl::FailedPreconditionError(what); }

// Prints a line to standard output, at once.
inline void Print(const std::string& line) {
  std::fputs((line + "\n").c_str(), stdout);
  std::fflush(stdout);
}

// The samples of one backward pass.
struct Pass {
  Batch batch;
  double weight = 1;  // of the pass' mean loss in the step's gradient, among all passes and ranks
  double share = 1;   // of the pass in this rank's samples of the step
};

// Copies of what a step changes before its optimizer steps, made at its beginning. (Random
// generators are seeded anew: Session::Implementation::SeedGenerators.)
struct StepStart {
  int64_t step = 0;
  std::vector<torch::Tensor> buffers;  // copies
  CheckpointedState::Tensors power_sgd;
  OwnStates::Kept own;
  bool is_finished = false;
  // Copies of what only optimizers change, for a step in which passes follow an optimizer's step:
  // with several modules, or with an optimizer that asks for the loss several times.
  std::optional<CheckpointTensors> before_update;
};

// One module of a Session, and what trains it. Most Sessions have one module, without a name. With
// several, as for a GAN, each is averaged over the ranks and stepped for itself.
struct SessionPart {
  std::string name;  // "" = the only one
  std::shared_ptr<torch::nn::Module> module;
  OptimizerKind kind;
  std::vector<ParameterGroup> groups;
  torch::optim::Optimizer* optimizer = nullptr;  // the Session's, or one of its set
  std::vector<double> rate_factors;              // of the schedule's peak, by its groups
  std::optional<GroupLearningRates> rates;
  std::unique_ptr<DistributedDataParallel> ddp;  // null with zero_stage 2 and up
  std::unique_ptr<BucketsCheckpoint> buckets;    // of `ddp`, from Prepare on
  std::unique_ptr<GradientWatch> watch;          // from Prepare on; of this generation
  OptimizerSteps steps;

  // The state of the current batch.
  bool forward_called = false;
  bool called_ungraded = false;  // a forward pass without gradients, as under a NoGradGuard
  bool has_gradients = false;    // of this pass or earlier ones, which no step has used
  bool backward_done = false;    // since this module's last step
  std::unique_ptr<DistributedDataParallel::NoSync> no_sync;  // not of the step's last pass
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_SESSION_STEP_H_
