#ifndef DDPRUN_WORKER_TORCH_SESSION_GRADIENT_WATCH_H_
#define DDPRUN_WORKER_TORCH_SESSION_GRADIENT_WATCH_H_

#include <torch/nn/module.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

namespace torch::autograd {
struct Node;
}  // namespace torch::autograd

namespace ddprun::worker {

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
    std::shared_ptr<torch::autograd::Node> node;
    uintptr_t key = 0;
  };
  std::vector<Hook> hooks_;
  std::atomic<bool> arrived_ = false;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_SESSION_GRADIENT_WATCH_H_
