#ifndef DDPRUN_WORKER_TORCH_OPTIM_GRADIENT_TAKER_H_
#define DDPRUN_WORKER_TORCH_OPTIM_GRADIENT_TAKER_H_

#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/types.h>

namespace ddprun::worker {

// A hook of a parameter's gradient accumulator that takes the gradient away, so that the
// parameter's grad() isn't the gradient that the optimizer will use. Code that would read grad()
// recognizes the hook by its type.
class GradientTaker : public torch::autograd::utils::LambdaPostHook {
 public:
  using LambdaPostHook::LambdaPostHook;
};

// Whether this parameter has a GradientTaker. Threads: the training loop's, outside of backward
// passes.
bool GradientIsTaken(const torch::Tensor& parameter);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_GRADIENT_TAKER_H_
