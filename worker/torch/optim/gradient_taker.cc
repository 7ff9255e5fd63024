#include "worker/torch/optim/gradient_taker.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace ddprun::worker {

bool GradientIsTaken(const torch::Tensor& parameter) {
  const auto node = torch::autograd::impl::try_get_grad_accumulator(parameter);
  return node != nullptr &&
         std::any_of(node->post_hooks().begin(), node->post_hooks().end(), [](const auto& hook) {
           return dynamic_cast<const GradientTaker*>(hook.get()) != nullptr;
         });
}

}  // namespace ddprun::worker
