#include "ddprun/fused_optimizers.h"

#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/_fused_sgd.h>
#include <ATen/ops/empty_like.h>
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
#include "worker/torch/optim/master_parameters.h"
#include "worker/torch/optim/optimizer_set.h"

namespace ddprun {
namespace {

using torch::Tensor;
using torch::optim::OptimizerParamGroup;

Tensor RunClosure(const torch::optim::Optimizer::LossClosure& closure) {
  if (closure == nullptr) return {};
  const at::AutoGradMode enable_grad(true);
  return closure();
}

// The kernels take tensors of one device and type, all at the same step. The last number divides
// parameters with masters into batches, to bound the memory of their converted gradients.
using BatchKey = std::tuple<std::string, torch::ScalarType, int64_t, int64_t>;

struct Batch {
  std::vector<Tensor> parameters;  // or their float32 copies
  std::vector<Tensor> gradients;
  std::vector<Tensor> first;    // exp_avg; momentum_buffer
  std::vector<Tensor> second;   // exp_avg_sq
  std::vector<Tensor> largest;  // max_exp_avg_sq
  std::vector<Tensor> narrow;   // of float32 copies: the parameters; else none
};

// The size of a batch of parameters with masters: 64 MiB of gradients in float32, or one parameter.
constexpr int64_t kBatchElements = int64_t{1} << 24;

class Batches {
 public:
  // The parameter's batch, which gets what is updated, and its gradient.
  Batch& Add(const Tensor& parameter, const Tensor& updated, int64_t step) {
    TORCH_CHECK(updated.is_non_overlapping_and_dense(), "a parameter of the sizes ",
                updated.sizes(), " and strides ", updated.strides(),
                " is a part of a larger tensor, which the fused optimizers can't update; clone() "
                "it when the module is made");
    int64_t part = 0;
    if (!updated.is_same(parameter)) {
      part = elements_ / kBatchElements;
      elements_ += parameter.numel();
    }
    Batch& batch = batches_[{parameter.device().str(), parameter.scalar_type(), step, part}];
    batch.parameters.push_back(updated);
    batch.gradients.push_back(parameter.grad());
    if (!updated.is_same(parameter)) batch.narrow.push_back(parameter);
    return batch;
  }
  // Calls update(batch, step) for each batch, then copies masters to their parameters.
  template <typename Update>
  void ForEach(Update&& update) {
    for (auto& [key, batch] : batches_) {
      for (size_t i = 0; i < batch.gradients.size(); ++i) {
        Tensor& gradient = batch.gradients[i];
        if (!batch.narrow.empty()) gradient = gradient.to(torch::kFloat);
        gradient = worker::InOrderOf(batch.parameters[i], gradient);
      }
      update(batch, std::get<2>(key));
      if (batch.narrow.empty()) continue;
      batch.gradients.clear();
      at::_foreach_copy_(batch.narrow, batch.parameters);
    }
  }

 private:
  std::map<BatchKey, Batch> batches_;
  int64_t elements_ = 0;  // of parameters with copies
};

// The state of a parameter, made when it has its first gradient, as torch::optim does.
template <typename State>
State& StateOf(torch::optim::Optimizer& optimizer, const Tensor& parameter) {
  auto& state = optimizer.state()[parameter.unsafeGetTensorImpl()];
  if (state == nullptr) state = std::make_unique<State>();
  return static_cast<State&>(*state);
}

// What is updated: the parameter, or its float32 copy, made when it is first needed.
template <typename State>
const Tensor& UpdatedOf(const Tensor& parameter, State& state) {
  if (!worker::HasMaster(parameter.scalar_type())) return parameter;
  if (!state.master_param.defined()) state.master_param = parameter.detach().to(torch::kFloat);
  return state.master_param;
}

// A field of the state in the type of `updated`. It is narrower in a checkpoint that was saved
// without masters.
Tensor Fitting(const Tensor& field, const Tensor& updated) {
  if (!field.defined()) return at::zeros_like(updated, at::MemoryFormat::Preserve);
  return worker::InOrderOf(updated, field.to(updated.scalar_type()));
}

Batches AdamBatches(torch::optim::Optimizer& optimizer, const OptimizerParamGroup& group,
                    bool amsgrad) {
  Batches batches;
  for (const Tensor& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    TORCH_CHECK(!parameter.grad().is_sparse(), "FusedAdamW does not support sparse gradients");
    auto& state = StateOf<worker::FusedAdamWState>(optimizer, parameter);
    const Tensor& updated = UpdatedOf(parameter, state);
    state.exp_avg(Fitting(state.exp_avg(), updated));
    state.exp_avg_sq(Fitting(state.exp_avg_sq(), updated));
    if (amsgrad) state.max_exp_avg_sq(Fitting(state.max_exp_avg_sq(), updated));
    state.step(state.step() + 1);
    Batch& batch = batches.Add(parameter, updated, state.step());
    batch.first.push_back(state.exp_avg());
    batch.second.push_back(state.exp_avg_sq());
    if (amsgrad) batch.largest.push_back(state.max_exp_avg_sq());
  }
  return batches;
}

Batches SgdBatches(torch::optim::Optimizer& optimizer, const OptimizerParamGroup& group,
                   bool momentum) {
  Batches batches;
  for (const Tensor& parameter : group.params()) {
    if (!parameter.grad().defined()) continue;
    TORCH_CHECK(!parameter.grad().is_sparse(), "FusedSGD does not support sparse gradients");
    if (!momentum && !worker::HasMaster(parameter.scalar_type())) {
      batches.Add(parameter, parameter, 0);  // plain SGD has no state
      continue;
    }
    auto& state = StateOf<worker::FusedSgdState>(optimizer, parameter);
    const Tensor& updated = UpdatedOf(parameter, state);
    const bool started = momentum && state.momentum_buffer().defined();
    Batch& batch = batches.Add(parameter, updated, started ? 1 : 0);  // 0 = its first step
    if (!momentum) continue;
    state.momentum_buffer(Fitting(state.momentum_buffer(), updated));
    batch.first.push_back(state.momentum_buffer());
  }
  return batches;
}

// Converts a state that LibTorch has read from an archive, which has no masters.
template <typename Own, typename Read>
void MakeOwn(torch::optim::Optimizer& optimizer) {
  for (auto& [parameter, state] : optimizer.state()) {
    auto own = std::make_unique<Own>();
    static_cast<Read&>(*own) = static_cast<Read&>(*state);
    state = std::move(own);
  }
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
  ++steps_taken_;
  Tensor loss = RunClosure(closure);
  for (OptimizerParamGroup& group : param_groups_) {
    const auto& options = static_cast<torch::optim::AdamWOptions&>(group.options());
    const double beta1 = std::get<0>(options.betas());
    const double beta2 = std::get<1>(options.betas());
    const auto update = [&](Batch& batch, int64_t step) {
      // One tensor for all: the kernel only reads it.
      const std::vector<Tensor> steps(
          batch.parameters.size(),
          at::full({}, static_cast<double>(step),
                   batch.parameters.front().options().dtype(torch::kFloat)));
      at::_fused_adamw_(batch.parameters, batch.gradients, batch.first, batch.second, batch.largest,
                        steps, options.lr(), beta1, beta2, options.weight_decay(), options.eps(),
                        options.amsgrad(), /*maximize=*/false);
    };
    AdamBatches(*this, group, options.amsgrad()).ForEach(update);
  }
  return loss;
}

Tensor FusedSGD::step(LossClosure closure) {
  const torch::NoGradGuard no_grad;
  ++steps_taken_;
  Tensor loss = RunClosure(closure);
  for (OptimizerParamGroup& group : param_groups_) {
    const auto& options = static_cast<torch::optim::SGDOptions&>(group.options());
    const auto update = [&](Batch& batch, int64_t started) {
      at::_fused_sgd_(batch.parameters, batch.gradients, batch.first, options.weight_decay(),
                      options.momentum(), options.lr(), options.dampening(), options.nesterov(),
                      /*maximize=*/false, /*is_first_step=*/started == 0);
    };
    SgdBatches(*this, group, options.momentum() != 0).ForEach(update);
  }
  return loss;
}

void FusedAdamW::load(torch::serialize::InputArchive& archive) {
  AdamW::load(archive);
  MakeOwn<worker::FusedAdamWState, torch::optim::AdamWParamState>(*this);
}

void FusedSGD::load(torch::serialize::InputArchive& archive) {
  SGD::load(archive);
  MakeOwn<worker::FusedSgdState, torch::optim::SGDParamState>(*this);
}

void FusedAdamW::ParametersChanged() { worker::DropMasters(*this); }
void FusedSGD::ParametersChanged() { worker::DropMasters(*this); }

namespace worker {

torch::Tensor InOrderOf(const torch::Tensor& like, const torch::Tensor& tensor) {
  const bool both_plain = tensor.is_contiguous() && like.is_contiguous();
  if (both_plain || tensor.strides() == like.strides()) return tensor;
  torch::Tensor ordered = at::empty_like(like, tensor.options());
  return ordered.copy_(tensor);
}

namespace {

// The master in a parameter's state; null: none.
torch::Tensor* MasterIn(torch::optim::OptimizerParamState& state) {
  if (auto* adam = dynamic_cast<FusedAdamWState*>(&state)) return &adam->master_param;
  if (auto* sgd = dynamic_cast<FusedSgdState*>(&state)) return &sgd->master_param;
  return nullptr;
}

}  // namespace

torch::Tensor MasterOf(const torch::optim::Optimizer& optimizer, const torch::Tensor& parameter) {
  if (const auto* set = dynamic_cast<const OptimizerSet*>(&optimizer)) {
    for (const OptimizerSet::Part& part : set->parts()) {
      torch::Tensor master = MasterOf(*part.optimizer, parameter);
      if (master.defined()) return master;
    }
    return {};
  }
  const auto found = optimizer.state().find(parameter.unsafeGetTensorImpl());
  if (found == optimizer.state().end()) return {};
  const torch::Tensor* master = MasterIn(*found->second);
  return master != nullptr ? *master : torch::Tensor();
}

void DropMasters(torch::optim::Optimizer& optimizer) {
  if (const auto* set = dynamic_cast<const OptimizerSet*>(&optimizer)) {
    for (const OptimizerSet::Part& part : set->parts()) DropMasters(*part.optimizer);
    return;
  }
  for (auto& [parameter, state] : optimizer.state()) {
    if (torch::Tensor* master = MasterIn(*state)) master->reset();
  }
}

}  // namespace worker
}  // namespace ddprun
