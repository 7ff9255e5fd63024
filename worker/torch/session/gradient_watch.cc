#include "worker/torch/session/gradient_watch.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "ddprun/parameters.h"

namespace ddprun::worker {

using torch::autograd::variable_list;
using torch::autograd::utils::LambdaPostHook;

GradientWatch::GradientWatch(const torch::nn::Module& module) {
  for (const torch::Tensor& parameter : Parameters(module)) {
    if (!parameter.requires_grad()) continue;
    Hook hook;
    hook.node = torch::autograd::impl::grad_accumulator(parameter);
    hook.key = hook.node->add_post_hook(std::make_unique<LambdaPostHook>(
        [this](const variable_list& outputs, const variable_list& /*inputs*/) {
          arrived_ = true;
          return outputs;
        }));
    hooks_.push_back(std::move(hook));
  }
}

GradientWatch::~GradientWatch() {
  for (Hook& hook : hooks_) hook.node->del_post_hook(hook.key);
}

}  // namespace ddprun::worker
