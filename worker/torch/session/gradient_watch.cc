#include "worker/torch/session/gradient_watch.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"

namespace ddprun::worker {
namespace {

// How many steps the optimizer has taken; 0: it doesn't count them.
int64_t TakenBy(const torch::optim::Optimizer& optimizer) {
  if (const auto* adamw = dynamic_cast<const FusedAdamW*>(&optimizer)) return adamw->steps_taken();
  if (const auto* sgd = dynamic_cast<const FusedSGD*>(&optimizer)) return sgd->steps_taken();
  if (const auto* zero = dynamic_cast<const ZeroOptimizer*>(&optimizer)) {
    return zero->implementation().steps_taken;
  }
  return 0;
}

}  // namespace

void OptimizerSteps::Note(const torch::optim::Optimizer& optimizer) { noted_ = TakenBy(optimizer); }

absl::Status OptimizerSteps::Check(const torch::optim::Optimizer& optimizer, int64_t step) const {
  if (TakenBy(optimizer) == noted_) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "after step ", step,
      " the program has stepped session.optimizer() itself: Session::Step() does so, and the "
      "update would be applied twice; call Step() alone"));
}

TrainedSet::TrainedSet(const torch::nn::Module& module) {
  for (NamedTensor& parameter : NamedParameters(module)) {
    std::vector<NamedTensor>& list = parameter.tensor.requires_grad() ? trained_ : frozen_;
    // A gradient from before the parameter was frozen: optimizers would step with it.
    if (!parameter.tensor.requires_grad()) parameter.tensor.mutable_grad().reset();
    list.push_back(std::move(parameter));
  }
}

absl::Status TrainedSet::Check() const {
  for (const NamedTensor& parameter : frozen_) {
    if (!parameter.tensor.requires_grad() && !parameter.tensor.grad().defined()) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "parameter '", parameter.name, "' needed no gradient at Prepare(), and now ",
        parameter.tensor.requires_grad() ? "needs" : "has",
        " one, which isn't averaged over the workers: for a parameter that is trained later, call "
        "requires_grad_(false) after Prepare(), and set --find_unused_parameters"));
  }
  return absl::OkStatus();
}

TrainedSet::Flags::Flags(const TrainedSet& set) {
  const auto want = [&](const std::vector<NamedTensor>& parameters, bool need) {
    for (const NamedTensor& parameter : parameters) {
      if (parameter.tensor.requires_grad() == need) continue;
      parameter.tensor.set_requires_grad(need);
      switched_.push_back(parameter.tensor);
    }
  };
  want(set.trained_, true);
  want(set.frozen_, false);
}

TrainedSet::Flags::~Flags() {
  for (const torch::Tensor& tensor : switched_) tensor.set_requires_grad(!tensor.requires_grad());
}

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
