#include "ddprun/fused_optimizers.h"

#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros_like.h>
#include <torch/utils.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "ddprun/parameters.h"

namespace ddprun {
namespace {

using torch::Tensor;
using torch::optim::OptimizerParamGroup;

Tensor RunClosure(const torch::optim::Optimizer::LossClosure& closure) {
  if (closure == nullptr) return {};
  const at::AutoGradMode enable_grad(true);
  return closure();
}

// The kernels take tensors of one device and type at a time, and all at the same step.
using BatchKey = std::tuple<std::string, torch::ScalarType, int64_t>;

struct Batch {
  std::vector<Tensor> parameters;
  std::vector<Tensor> gradients;
  std::vector<Tensor> first;    // exp_avg; momentum_buffer
  std::vector<Tensor> second;   // exp_avg_sq
  std::vector<Tensor> largest;  // max_exp_avg_sq
};

BatchKey KeyOf(const Tensor& parameter, int64_t step) {
  return {parameter.device().str(), parameter.scalar_type(), step};
}

// The state of a parameter, made when it has its first gradient, as torch::optim does.
template <typename State>
State& StateOf(torch::optim::Optimizer& optimizer, const Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (state == nullptr) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

std::map<BatchKey, Batch> AdamBatches(torch::optim::Optimizer& optimizer,
                                      const OptimizerParamGroup& group, bool amsgrad) {
  std::map<BatchKey, Batch> batches;
  for (const Tensor& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    TORCH_CHECK(!parameter.grad().is_sparse(), "FusedAdamW does not support sparse gradients");
    auto& state = StateOf<torch::optim::AdamWParamState>(optimizer, parameter);
    if (!state.exp_avg().defined()) {
      state.exp_avg(at::zeros_like(parameter, at::MemoryFormat::Preserve));
      state.exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
      if (amsgrad) state.max_exp_avg_sq(at::zeros_like(parameter, at::MemoryFormat::Preserve));
    }
    state.step(state.step() + 1);
    Batch& batch = batches[KeyOf(parameter, state.step())];
    batch.parameters.push_back(parameter);
    batch.gradients.push_back(parameter.grad());
    batch.first.push_back(state.exp_avg());
    batch.second.push_back(state.exp_avg_sq());
    if (amsgrad) batch.largest.push_back(state.max_exp_avg_sq());
  }
  return batches;
}

std::map<BatchKey, Batch> SgdBatches(torch::optim::Optimizer& optimizer,
                                     const OptimizerParamGroup& group, bool momentum) {
  std::map<BatchKey, Batch> batches;
  for (const Tensor& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    TORCH_CHECK(!parameter.grad().is_sparse(), "FusedSGD does not support sparse gradients");
    bool started = false;
    Tensor buffer;
    if (momentum) {
      auto& state = StateOf<torch::optim::SGDParamState>(optimizer, parameter);
      started = state.momentum_buffer().defined();
      if (!started) state.momentum_buffer(at::zeros_like(parameter, at::MemoryFormat::Preserve));
      buffer = state.momentum_buffer();
    }
    Batch& batch = batches[KeyOf(parameter, started ? 1 : 0)];  // 0 = its first step
    batch.parameters.push_back(parameter);
    batch.gradients.push_back(parameter.grad());
    if (momentum) batch.first.push_back(buffer);
  }
  return batches;
}

// The groups with each parameter once.
std::vector<OptimizerParamGroup> DistinctGroups(const std::vector<OptimizerParamGroup>& groups) {
  std::set<const void*> seen;
  std::vector<OptimizerParamGroup> distinct = groups;
  for (OptimizerParamGroup& group : distinct) {
    group.params() = DistinctTensors(group.params());
    for (const Tensor& parameter : group.params()) {
      TORCH_CHECK(seen.insert(parameter.unsafeGetTensorImpl()).second, "a parameter of the sizes ",
                  parameter.sizes(), " is in two parameter groups; give each one only");
    }
  }
  return distinct;
}

}  // namespace

FusedAdamW::FusedAdamW(const std::vector<OptimizerParamGroup>& groups,
                       torch::optim::AdamWOptions defaults)
    : AdamW(DistinctGroups(groups), std::move(defaults)) {}

FusedAdamW::FusedAdamW(std::vector<Tensor> parameters, torch::optim::AdamWOptions defaults)
    : FusedAdamW({OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

FusedSGD::FusedSGD(const std::vector<OptimizerParamGroup>& groups,
                   torch::optim::SGDOptions defaults)
    : SGD(DistinctGroups(groups), std::move(defaults)) {}

FusedSGD::FusedSGD(std::vector<Tensor> parameters, torch::optim::SGDOptions defaults)
    : FusedSGD({OptimizerParamGroup(std::move(parameters))}, std::move(defaults)) {}

Tensor FusedAdamW::step(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  Tensor loss = RunClosure(closure);
  for (OptimizerParamGroup& group : param_groups_) {
    const auto& options = static_cast<torch::optim::AdamWOptions&>(group.options());
    const auto [beta1, beta2] = options.betas();
    for (auto& [key, batch] : AdamBatches(*this, group, options.amsgrad())) {
      const auto step = static_cast<double>(std::get<2>(key));
      // One tensor for all: the kernel only reads it.
      const std::vector<Tensor> steps(
          batch.parameters.size(),
          at::full({}, step, batch.parameters.front().options().dtype(torch::kFloat)));
      at::_fused_adamw_(batch.parameters, batch.gradients, batch.first, batch.second, batch.largest,
                        steps, options.lr(), beta1, beta2, options.weight_decay(), options.eps(),
                        options.amsgrad(), /*maximize=*/false);
    }
  }
  return loss;
}

Tensor FusedSGD::step(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  Tensor loss = RunClosure(closure);
  for (OptimizerParamGroup& group : param_groups_) {
    const auto& options = static_cast<torch::optim::SGDOptions&>(group.options());
    for (auto& [key, batch] : SgdBatches(*this, group, options.momentum() != 0)) {
      at::_fused_sgd_(batch.parameters, batch.gradients, batch.first, options.weight_decay(),
                      options.momentum(), options.lr(), options.dampening(), options.nesterov(),
                      /*maximize=*/false, /*is_first_step=*/std::get<2>(key) == 0);
    }
  }
  return loss;
}

}  // namespace ddprun
