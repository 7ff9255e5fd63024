#ifndef DDPRUN_WORKER_TORCH_SESSION_SESSION_PART_H_
#define DDPRUN_WORKER_TORCH_SESSION_SESSION_PART_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/distributed_data_parallel.h"
#include "ddprun/learning_rate.h"
#include "ddprun/optimizer_kind.h"
#include "worker/torch/session/buckets_checkpoint.h"
#include "worker/torch/session/gradient_watch.h"
#include "worker/torch/session/optimizer_steps.h"

namespace ddprun::worker {

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

#endif  // DDPRUN_WORKER_TORCH_SESSION_SESSION_PART_H_
