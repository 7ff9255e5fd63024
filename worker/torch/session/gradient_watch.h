#ifndef DDPRUN_WORKER_TORCH_SESSION_GRADIENT_WATCH_H_
#define DDPRUN_WORKER_TORCH_SESSION_GRADIENT_WATCH_H_

#include <torch/csrc/autograd/edge.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "ddprun/parameters.h"

namespace ddprun::worker {

// Detects that a program steps a Session's optimizer itself, as loops without a Session do: each
// update would be applied twice. Threads: one.
class OptimizerSteps {
 public:
  // Call it after each step that the Session had the optimizer take, also if that failed.
  void Note(const torch::optim::Optimizer& optimizer);
  // Errors: FAILED_PRECONDITION — the optimizer has taken other steps since; the text names `step`,
  // the last one that was done. OK for optimizers that don't count their steps.
  absl::Status Check(const torch::optim::Optimizer& optimizer, int64_t step) const;

 private:
  int64_t noted_ = 0;
};

// The parameters of a module that are trained: those that need gradients when it is made. A program
// may freeze some of them for a while, but c10d averages those that need gradients at a
// generation's beginning: each generation begins with the flags of this set. Threads: one.
class TrainedSet {
 public:
  // Clears gradients of the others, as of a training before they were frozen.
  explicit TrainedSet(const torch::nn::Module& module);

  // Errors: FAILED_PRECONDITION — a parameter outside of the set needs or has a gradient, which
  // nothing averages; the text names it.
  absl::Status Check() const;

  // While it lives, only parameters of the set need gradients; then those that did before.
  class Flags {
   public:
    explicit Flags(const TrainedSet& set);
    ~Flags();
    Flags(const Flags&) = delete;
    Flags& operator=(const Flags&) = delete;

   private:
    std::vector<torch::Tensor> switched_;
  };

 private:
  std::vector<NamedTensor> trained_;
  std::vector<NamedTensor> frozen_;
};

// Records whether a backward pass has reached a module's parameters. Neither c10d's reducer nor
// ZeroReducer notices a pass that reaches none of them. Gradients don't show it either, because
// views into buckets stay defined.
// Threads: backward passes may run on others than the loop's.
class GradientWatch {
 public:
  // Watches the parameters that need gradients; anew after their data has moved.
  explicit GradientWatch(const torch::nn::Module& module);
  ~GradientWatch();
  GradientWatch(const GradientWatch&) = delete;
  GradientWatch& operator=(const GradientWatch&) = delete;

  // Whether a parameter got a gradient since the last call.
  bool TakeArrived() { return arrived_.exchange(false); }

 private:
  struct Hook {
    decltype(torch::autograd::Edge::function) node;
    uintptr_t key = 0;
  };
  std::vector<Hook> hooks_;
  std::atomic<bool> arrived_ = false;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_GRADIENT_WATCH_H_
