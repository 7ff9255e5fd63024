#include "worker/torch/optim/optimizer_state.h"

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <memory>
#include <typeinfo>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "ddprun/fused_optimizers.h"
#include "worker/torch/optim/master_parameters.h"
#include "worker/torch/optim/optimizer_archive.h"
#include "worker/torch/optim/optimizer_set.h"

namespace ddprun::worker {
namespace {

using torch::optim::Optimizer;
using torch::optim::OptimizerParamState;

// Calls visit(name, field) for the tensors and counts of each optimizer's state.
template <typename State, typename Visitor>
void VisitAdamFields(State& state, Visitor&& visit) {
  visit("step", state.step());
  visit("exp_avg", state.exp_avg());
  visit("exp_avg_sq", state.exp_avg_sq());
  visit("max_exp_avg_sq", state.max_exp_avg_sq());
}

template <typename Visitor>
void VisitFields(torch::optim::AdamParamState& state, Visitor&& visit) {
  VisitAdamFields(state, visit);
}

template <typename Visitor>
void VisitFields(torch::optim::AdamWParamState& state, Visitor&& visit) {
  VisitAdamFields(state, visit);
}

template <typename Visitor>
void VisitFields(FusedAdamWState& state, Visitor&& visit) {
  VisitAdamFields(state, visit);
  visit("master_param", state.master_param);
}

template <typename Visitor>
void VisitFields(FusedSgdState& state, Visitor&& visit) {
  visit("momentum_buffer", state.momentum_buffer());
  visit("master_param", state.master_param);
}

template <typename Visitor>
void VisitFields(torch::optim::SGDParamState& state, Visitor&& visit) {
  visit("momentum_buffer", state.momentum_buffer());
}

template <typename Visitor>
void VisitFields(torch::optim::RMSpropParamState& state, Visitor&& visit) {
  visit("step", state.step());
  visit("square_avg", state.square_avg());
  visit("momentum_buffer", state.momentum_buffer());
  visit("grad_avg", state.grad_avg());
}

template <typename Visitor>
void VisitFields(torch::optim::AdagradParamState& state, Visitor&& visit) {
  visit("step", state.step());
  visit("sum", state.sum());
}

// Puts fields into tensors; undefined tensors (options that are off) are left out.
struct Writer {
  OptimizerTensors& tensors;
  std::string prefix;

  void operator()(const char* name, int64_t& count) const {
    tensors[prefix + name] = torch::tensor(count, torch::kLong);
  }
  void operator()(const char* name, torch::Tensor& tensor) const {
    if (tensor.defined()) tensors[prefix + name] = tensor.detach();
  }
};

// Takes fields out of tensors.
struct Reader {
  const OptimizerTensors& tensors;
  std::string prefix;
  const torch::Tensor& parameter;
  size_t& used;
  absl::Status& status;

  void operator()(const char* name, int64_t& count) const {
    const auto found = tensors.find(prefix + name);
    if (found == tensors.end()) {
      status.Update(absl::FailedPreconditionError(
          absl::StrCat("the optimizer's state has no '", prefix, name, "'")));
      return;
    }
    count = found->second.item<int64_t>();
    ++used;
  }
  void operator()(const char* name, torch::Tensor& tensor) const {
    const auto found = tensors.find(prefix + name);
    if (found == tensors.end()) return;
    ++used;
    if (found->second.sizes() != parameter.sizes()) {
      status.Update(NotItsParameters(prefix + name, found->second.sizes(), parameter.sizes()));
      return;
    }
    // As the optimizer would have made it: the order in memory decides which elements a kernel
    // computes together, and so the last bits.
    tensor = torch::empty_like(parameter, found->second.options().device(parameter.device()));
    tensor.copy_(found->second);
  }
};

// Collects the fields' names.
struct NameReader {
  OptimizerFields& fields;

  void operator()(const char* name, int64_t& /*count*/) const { fields.counts.emplace_back(name); }
  void operator()(const char* name, torch::Tensor& /*tensor*/) const {
    fields.tensors.emplace_back(name);
  }
};

std::vector<torch::Tensor> AllParameters(const Optimizer& optimizer) {
  std::vector<torch::Tensor> parameters;
  for (const auto& group : optimizer.param_groups()) {
    parameters.insert(parameters.end(), group.params().begin(), group.params().end());
  }
  return parameters;
}

std::string LearningRateName(size_t group) {
  return absl::StrCat("group.", group, ".learning_rate");
}

bool HasPrefix(const OptimizerTensors& tensors, const std::string& prefix) {
  const auto found = tensors.lower_bound(prefix);
  return found != tensors.end() && found->first.compare(0, prefix.size(), prefix) == 0;
}

template <typename State>
OptimizerTensors GetState(const Optimizer& optimizer) {
  OptimizerTensors tensors;
  const std::vector<torch::Tensor> parameters = AllParameters(optimizer);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto found = optimizer.state().find(parameters[i].unsafeGetTensorImpl());
    if (found == optimizer.state().end()) continue;  // had no gradient yet
    VisitFields(static_cast<State&>(*found->second), Writer{tensors, absl::StrCat(i, ".")});
  }
  for (size_t i = 0; i < optimizer.param_groups().size(); ++i) {
    const double rate = optimizer.param_groups()[i].options().get_lr();
    tensors[LearningRateName(i)] = torch::tensor(rate, torch::kDouble);
  }
  return tensors;
}

template <typename State>
absl::Status SetState(Optimizer& optimizer, const OptimizerTensors& tensors) {
  std::vector<torch::Tensor> parameters = AllParameters(optimizer);
  const size_t groups = optimizer.param_groups().size();
  std::vector<std::unique_ptr<State>> states(parameters.size());
  absl::Status status;
  size_t used = 0;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const std::string prefix = absl::StrCat(i, ".");
    if (!HasPrefix(tensors, prefix)) continue;
    states[i] = std::make_unique<State>();
    VisitFields(*states[i], Reader{tensors, prefix, parameters[i], used, status});
  }
  DDPRUN_RETURN_IF_ERROR(status);
  for (size_t i = 0; i < groups; ++i) used += tensors.count(LearningRateName(i));
  if (used != tensors.size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        "only ", used, " of ", tensors.size(),
        " tensors of the optimizer's state belong to this optimizer; use the optimizer "
        "and the parameter groups that the checkpoint was written with"));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const void* parameter = parameters[i].unsafeGetTensorImpl();
    if (states[i] == nullptr) {
      optimizer.state().erase(const_cast<void*>(parameter));
    } else {
      optimizer.state()[const_cast<void*>(parameter)] = std::move(states[i]);
    }
  }
  for (size_t i = 0; i < groups; ++i) {
    const auto found = tensors.find(LearningRateName(i));
    if (found == tensors.end()) continue;
    optimizer.param_groups()[i].options().set_lr(found->second.item<double>());
  }
  return absl::OkStatus();
}

// Calls function(tag) with a null pointer to the state's type.
template <typename Function>
absl::Status WithStateType(const Optimizer& optimizer, Function&& function) {
  if (dynamic_cast<const FusedAdamW*>(&optimizer) != nullptr) {
    return function(static_cast<FusedAdamWState*>(nullptr));
  }
  if (dynamic_cast<const FusedSGD*>(&optimizer) != nullptr) {
    return function(static_cast<FusedSgdState*>(nullptr));
  }
  if (dynamic_cast<const torch::optim::AdamW*>(&optimizer) != nullptr) {
    return function(static_cast<torch::optim::AdamWParamState*>(nullptr));
  }
  if (dynamic_cast<const torch::optim::Adam*>(&optimizer) != nullptr) {
    return function(static_cast<torch::optim::AdamParamState*>(nullptr));
  }
  if (dynamic_cast<const torch::optim::SGD*>(&optimizer) != nullptr) {
    return function(static_cast<torch::optim::SGDParamState*>(nullptr));
  }
  if (dynamic_cast<const torch::optim::RMSprop*>(&optimizer) != nullptr) {
    return function(static_cast<torch::optim::RMSpropParamState*>(nullptr));
  }
  if (dynamic_cast<const torch::optim::Adagrad*>(&optimizer) != nullptr) {
    return function(static_cast<torch::optim::AdagradParamState*>(nullptr));
  }
  return absl::UnimplementedError(
      absl::StrCat("the state of an optimizer of type ", c10::demangle(typeid(optimizer).name()),
                   " has no names; that of Adam, AdamW, SGD, RMSprop and Adagrad has"));
}

// The name of the state of an optimizer with fields that aren't known here.
constexpr const char* kArchive = "archive";

bool HasFields(const Optimizer& optimizer) {
  return WithStateType(optimizer, [](auto*) { return absl::OkStatus(); }).ok();
}

}  // namespace

absl::Status NotItsParameters(const std::string& name, at::IntArrayRef stored,
                              at::IntArrayRef parameter) {
  return absl::FailedPreconditionError(absl::StrCat(
      "the optimizer's state '", name, "' is [", absl::StrJoin(stored, ", "),
      "], and its parameter [", absl::StrJoin(parameter, ", "),
      "]: the parameter groups have other parameters, or another order of them, than those that "
      "the checkpoint was written with; make the same groups, or begin with its weights alone "
      "(LoadWeights)"));
}

absl::StatusOr<OptimizerFields> GetOptimizerFields(const Optimizer& optimizer) {
  OptimizerFields fields;
  DDPRUN_RETURN_IF_ERROR(WithStateType(optimizer, [&](auto* type) {
    std::remove_pointer_t<decltype(type)> state;
    VisitFields(state, NameReader{fields});
    return absl::OkStatus();
  }));
  return fields;
}

absl::StatusOr<OptimizerTensors> GetOptimizerState(const Optimizer& optimizer) {
  OptimizerTensors tensors;
  if (const auto* set = dynamic_cast<const OptimizerSet*>(&optimizer)) {
    for (const OptimizerSet::Part& part : set->parts()) {
      DDPRUN_ASSIGN_OR_RETURN(const OptimizerTensors of_part, GetOptimizerState(*part.optimizer));
      for (const auto& [name, tensor] : of_part) {
        tensors[absl::StrCat(part.name, ".", name)] = tensor;
      }
    }
    return tensors;
  }
  if (const auto* lbfgs = dynamic_cast<const torch::optim::LBFGS*>(&optimizer)) {
    return GetLbfgsState(*lbfgs);
  }
  if (!HasFields(optimizer)) {
    DDPRUN_ASSIGN_OR_RETURN(tensors[kArchive], SaveToArchive(optimizer));
    return tensors;
  }
  DDPRUN_RETURN_IF_ERROR(WithStateType(optimizer, [&](auto* type) {
    tensors = GetState<std::remove_pointer_t<decltype(type)>>(optimizer);
    return absl::OkStatus();
  }));
  return tensors;
}

absl::Status SetOptimizerState(Optimizer& optimizer, const OptimizerTensors& state) {
  if (const auto* set = dynamic_cast<const OptimizerSet*>(&optimizer)) {
    for (const OptimizerSet::Part& part : set->parts()) {
      OptimizerTensors of_part;
      const std::string prefix = part.name + ".";
      for (auto at = state.lower_bound(prefix); at != state.end(); ++at) {
        if (at->first.compare(0, prefix.size(), prefix) != 0) break;
        of_part[at->first.substr(prefix.size())] = at->second;
      }
      if (of_part.empty()) {
        return absl::FailedPreconditionError(
            absl::StrCat("the checkpoint has no optimizer of a module '", part.name, "'"));
      }
      DDPRUN_RETURN_IF_ERROR(SetOptimizerState(*part.optimizer, of_part));
    }
    return absl::OkStatus();
  }
  if (auto* lbfgs = dynamic_cast<torch::optim::LBFGS*>(&optimizer)) {
    return SetLbfgsState(*lbfgs, state);
  }
  if (!HasFields(optimizer)) {
    const auto found = state.find(kArchive);
    if (found == state.end() || found->second.scalar_type() != torch::kByte) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the checkpoint's optimizer isn't a ", c10::demangle(typeid(optimizer).name()),
          "; use the optimizer that it was written with, or begin with its weights"));
    }
    return LoadFromArchive(found->second, optimizer);
  }
  return WithStateType(optimizer, [&](auto* type) {
    return SetState<std::remove_pointer_t<decltype(type)>>(optimizer, state);
  });
}

}  // namespace ddprun::worker
