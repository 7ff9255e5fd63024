#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_DISTRIBUTED_DATA_PARALLEL_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_DISTRIBUTED_DATA_PARALLEL_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "ddprun/context.h"

namespace ddprun {

// The options of torch.nn.parallel.DistributedDataParallel, with its defaults.
struct DistributedDataParallelOptions {
  // Size of the gradient buckets in MiB; unset: 25, the first bucket 1, so that it leaves early.
  std::optional<double> bucket_cap_mb;
  // Gradients are views into the buckets: no copy, but ZeroGrad must not free them.
  bool gradient_as_bucket_view = false;
  // Some parameters get no gradient in some steps. Costs a walk over the graph a step.
  bool find_unused_parameters = false;
  // The set of used parameters, and the order, are the same in every step.
  bool static_graph = false;
  // Rank 0's buffers (BatchNorm's statistics) go to all ranks before each forward pass.
  bool broadcast_buffers = true;
};

// Data-parallel training of one module over c10d::Reducer: gradients are averaged over all ranks in
// buckets, while the rest of the backward pass still runs. Bit-identical with Python's.
//
//   ddp->ZeroGrad();
//   auto loss = cross_entropy(ddp->Forward([&] { return model->forward(batch); }), target);
//   loss.backward();   // throws when a peer dies; RunWorker turns that into the error file
//   optimizer.step();
//
// Threads: one. Requires: the context outlives it; the same module and options on every rank.
class DistributedDataParallel {
 public:
  // Copies rank 0's parameters and buffers to all ranks.
  // Errors: INVALID_ARGUMENT — no parameter needs a gradient, one is on another device than the
  // context's, or bucket_cap_mb is not positive. INTERNAL — parameters differ between the ranks.
  // UNAVAILABLE — a peer is gone.
  static absl::StatusOr<std::unique_ptr<DistributedDataParallel>> Create(
      std::shared_ptr<torch::nn::Module> module, Context& context,
      const DistributedDataParallelOptions& options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  // Runs the module's forward pass, `forward`, which returns a tensor or a vector of tensors; the
  // loss must be made from what this returns.
  template <typename Function>
  auto Forward(Function&& forward) {
    BeforeForward();
    return AfterForward(std::forward<Function>(forward)());
  }

  // Clears the gradients, as optimizer.zero_grad() does, without giving up bucket views.
  void ZeroGrad();

  // The parameters that need gradients, in the module's order.
  const std::vector<torch::Tensor>& parameters() const;

  // While it lives, backward passes add up gradients locally; the first one after it averages them.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
    const bool before_;
  };

 private:
  struct Implementation;

  explicit DistributedDataParallel(std::shared_ptr<Implementation> implementation);
  void BeforeForward();
  torch::Tensor AfterForward(torch::Tensor output);
  std::vector<torch::Tensor> AfterForward(std::vector<torch::Tensor> outputs);

  std::shared_ptr<Implementation> implementation_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_DISTRIBUTED_DATA_PARALLEL_H_
