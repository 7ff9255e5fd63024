#ifndef DDPRUN_WORKER_TORCH_ZERO_ZERO_OPTIMIZER_IMPLEMENTATION_H_
#define DDPRUN_WORKER_TORCH_ZERO_ZERO_OPTIMIZER_IMPLEMENTATION_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/time/time.h"
#include "ddprun/context.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/zero/zero_gatherer.h"
#include "worker/torch/zero/zero_reducer.h"
#include "worker/torch/zero/zero_storage.h"

namespace ddprun {

// Members die in reverse order: the reducer uses all others.
struct ZeroOptimizer::Implementation {
  std::shared_ptr<torch::nn::Module> module;
  ZeroOptions options;
  MakeOptimizer make;
  torch::Device device = torch::kCPU;
  const Context::Implementation* place = nullptr;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::vector<std::vector<int64_t>> shapes;  // of the groups' parameters, frozen ones too
  std::unique_ptr<worker::ZeroStorage> storage;
  std::unique_ptr<torch::optim::Optimizer> inner;  // of this rank's pieces
  std::optional<worker::ZeroGatherer> gatherer;    // stage 3
  std::optional<worker::ZeroReducer> reducer;      // stages 2 and 3
  std::set<std::string> not_finite;  // stage 3: parameters that weren't finite at the start
  int64_t steps_taken = 0;           // calls of Step
  int64_t setups = 0;                // one for each generation's ranks
  bool knows_averaging = false;      // stage 1, in this generation
  bool told_memory = false;
  absl::Duration update;
  absl::Duration gathering;

  // Stage 1: FAILED_PRECONDITION, on all ranks — the gradients aren't averaged. A collective.
  absl::Status CheckAveraging() const;
  // Stage 1: this rank's pieces of the averaged gradients become the inner optimizer's.
  void TakeAveragedGradients();
  // Gathers the updated shares of all ranks into the parameters.
  void GatherParameters();
  // Copies rank 0's buffers to all ranks.
  void BroadcastBuffers();
  // Waits for the group's collectives, if this process can survive the loss of a peer.
  absl::Status AwaitGroup() const;
};

using ZeroImplementation = ZeroOptimizer::Implementation;

}  // namespace ddprun

#endif  // DDPRUN_WORKER_TORCH_ZERO_ZERO_OPTIMIZER_IMPLEMENTATION_H_
