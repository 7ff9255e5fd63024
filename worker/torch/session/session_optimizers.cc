// The modules of a session, combined into one, and their optimizers.
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <set>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/parameters.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/optimizer_set.h"
#include "worker/torch/optim/optimizer_state.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {
namespace {

using Groups = std::vector<AnyOptimizer::Group>;

DistributedDataParallelOptions DdpOptions(const TrainingOptions& options) {
  DistributedDataParallelOptions result = {
      .gradient_as_bucket_view = options.gradient_as_bucket_view,
      .find_unused_parameters = options.find_unused_parameters,
      .static_graph = options.static_graph,
      .broadcast_buffers = options.broadcast_buffers,
      .broadcast_buffers_once_a_step = true,
  };
  if (options.bucket_cap_mb > 0) result.bucket_cap_mb = options.bucket_cap_mb;
  if (options.comm_hook == "allreduce") result.built_in_hook = BuiltInHook::kAllReduce;
  if (options.comm_hook == "fp16") result.built_in_hook = BuiltInHook::kFloat16;
  if (options.comm_hook == "bf16") result.built_in_hook = BuiltInHook::kBFloat16;
  return result;
}

torch::optim::AdamWOptions OptionsOf(const AdamW& kind, double rate, double weight_decay) {
  return torch::optim::AdamWOptions(rate)
      .betas(std::make_tuple(kind.betas.first, kind.betas.second))
      .eps(kind.eps)
      .weight_decay(weight_decay);
}

torch::optim::SGDOptions OptionsOf(const Sgd& kind, double rate, double weight_decay) {
  return torch::optim::SGDOptions(rate)
      .momentum(kind.momentum)
      .nesterov(kind.nesterov)
      .weight_decay(weight_decay);
}

std::unique_ptr<torch::optim::Optimizer> Fused(
    const std::vector<torch::optim::OptimizerParamGroup>& groups,
    const torch::optim::AdamWOptions& options) {
  return std::make_unique<FusedAdamW>(groups, options);
}

std::unique_ptr<torch::optim::Optimizer> Fused(
    const std::vector<torch::optim::OptimizerParamGroup>& groups,
    const torch::optim::SGDOptions& options) {
  return std::make_unique<FusedSGD>(groups, options);
}

// Makes an optimizer with `one`'s options; a group with a weight decay of its own keeps it.
template <typename Kind>
std::vector<torch::optim::OptimizerParamGroup> WithOptions(
    const Kind& one, const Groups& groups, const std::vector<double>& weight_decays) {
  std::vector<torch::optim::OptimizerParamGroup> all;
  for (size_t i = 0; i < groups.size(); ++i) {
    const auto options = OptionsOf(one, groups[i].learning_rate, weight_decays[i]);
    all.emplace_back(groups[i].parameters,
                     std::make_unique<std::decay_t<decltype(options)>>(options));
  }
  return all;
}

absl::Status RefuseOptions(const std::string& name, const TrainingOptions& options,
                           const std::vector<ParameterGroup>& groups) {
  if (options.zero_stage != "0") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--zero_stage ", options.zero_stage, " shares out the state of AdamW and Sgd, ",
        "and not that of ", name, ": leave it out, or take one of these"));
  }
  bool decays = options.weight_decay != 0;
  for (const ParameterGroup& group : groups) decays = decays || group.weight_decay.has_value();
  if (!decays) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("a weight decay of the training or of a group has no effect on ", name,
                   ": give it in the options that OptimizerOf gets"));
}

}  // namespace

absl::Status Session::Implementation::Add(worker::SessionPart part) {
  if (place != Place::kUnprepared) {
    return absl::FailedPreconditionError(
        absl::StrCat("Add(\"", part.name, "\") after Prepare(): add all modules before it"));
  }
  if (absl::StrContains(part.name, '.')) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", part.name, "' can't name a module: leave the '.' out"));
  }
  for (const worker::SessionPart& other : parts) {
    if (other.name.empty() || part.name.empty() || other.name == part.name) {
      return absl::InvalidArgumentError(
          absl::StrCat("of several modules each needs a name of its own: Add(\"", part.name,
                       "\") comes after Add(\"", other.name, "\")"));
    }
  }
  parts.push_back(std::move(part));
  return absl::OkStatus();
}

absl::Status Session::Implementation::BringTogether() {
  if (parts.empty()) {
    return absl::FailedPreconditionError(
        "Prepare() of data alone trains what Add() was given: Add() a module before it");
  }
  const bool is_one = parts.size() == 1;
  if (!is_one && options.zero_stage != "0") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--zero_stage ", options.zero_stage, " trains one module, and the session has ",
        parts.size(), ": leave it out, or put them into one with one optimizer"));
  }
  if (!is_one && options.comm_hook == "power_sgd") {
    return absl::InvalidArgumentError(
        "--comm_hook power_sgd keeps what it leaves out of one module's gradients, and the session "
        "has several: take another one");
  }
  if (is_one && parts.front().name.empty()) {
    model = parts.front().module;
    return absl::OkStatus();
  }
  model = std::make_shared<torch::nn::Module>();
  for (const worker::SessionPart& part : parts) model->register_module(part.name, part.module);
  return absl::OkStatus();
}

absl::StatusOr<Groups> Session::Implementation::GroupsOf(worker::SessionPart& part,
                                                         std::vector<double>& decays) const {
  std::set<const void*> taken;
  Groups groups;
  for (const ParameterGroup& group : part.groups) {
    if (group.parameters.empty() || !(group.learning_rate_factor > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter group ", groups.size(), " has ", group.parameters.size(),
          " parameters and a learning_rate_factor of ", group.learning_rate_factor,
          "; give it some, and a factor above 0 (or let requires_grad_(false) freeze them)"));
    }
    for (const torch::Tensor& parameter : group.parameters) {
      taken.insert(parameter.unsafeGetTensorImpl());
    }
    part.rate_factors.push_back(group.learning_rate_factor);
    decays.push_back(group.weight_decay.value_or(options.weight_decay));
    groups.push_back({.parameters = group.parameters,
                      .learning_rate = schedule.peak * group.learning_rate_factor});
  }
  std::vector<torch::Tensor> rest;
  for (const torch::Tensor& parameter : Parameters(*part.module)) {
    if (!taken.contains(parameter.unsafeGetTensorImpl())) rest.push_back(parameter);
  }
  if (rest.empty()) return groups;
  part.rate_factors.insert(part.rate_factors.begin(), 1);
  decays.insert(decays.begin(), options.weight_decay);
  groups.insert(groups.begin(), {.parameters = std::move(rest), .learning_rate = schedule.peak});
  return groups;
}

absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> Session::Implementation::MakeOptimizer(
    worker::SessionPart& part) {
  using Made = absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>>;
  std::vector<double> decays;
  DDPRUN_ASSIGN_OR_RETURN(const Groups groups, GroupsOf(part, decays));
  const auto make = [&](const auto& one) -> Made {
    if constexpr (std::is_same_v<std::decay_t<decltype(one)>, AnyOptimizer>) {
      DDPRUN_RETURN_IF_ERROR(RefuseOptions(one.name, options, part.groups));
      std::unique_ptr<torch::optim::Optimizer> made = one.make(groups);
      // Checked now instead of at the first checkpoint.
      DDPRUN_RETURN_IF_ERROR(worker::GetOptimizerState(*made).status());
      return made;
    } else {
      const auto defaults = OptionsOf(one, schedule.peak, options.weight_decay);
      const auto all = WithOptions(one, groups, decays);
      if (options.zero_stage == "0") return Fused(all, defaults);
      ZeroOptions zero_options = {.stage = options.zero_stage[0] - '0',
                                  .find_unused_parameters = options.find_unused_parameters,
                                  .broadcast_buffers = options.broadcast_buffers,
                                  .groups = all};
      if (options.bucket_cap_mb > 0) zero_options.bucket_cap_mb = options.bucket_cap_mb;
      make_zero = [this, defaults, zero_options](bool init_sync) {
        ZeroOptions with_sync = zero_options;
        with_sync.init_sync = init_sync;
        return ZeroOptimizer::Create(model, *context, defaults, with_sync);
      };
      return nullptr;
    }
  };
  return worker::CatchExceptions([&]() -> Made { return std::visit(make, part.kind); });
}

absl::Status Session::Implementation::MakeOptimizers() {
  for (worker::SessionPart& part : parts) {
    part.buckets = std::make_unique<worker::BucketsCheckpoint>(part.ddp);
  }
  std::vector<worker::OptimizerSet::Part> made;
  for (worker::SessionPart& part : parts) {
    DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<torch::optim::Optimizer> one, MakeOptimizer(part));
    if (one == nullptr) return absl::OkStatus();  // ZeRO: made later, of the only part
    part.optimizer = one.get();
    made.push_back({.name = part.name, .optimizer = std::move(one)});
  }
  if (parts.size() == 1) {
    optimizer = std::move(made.front().optimizer);
  } else {
    DDPRUN_RETURN_IF_ERROR(worker::CatchExceptions([&] {
      optimizer = std::make_unique<worker::OptimizerSet>(std::move(made));
      return absl::OkStatus();
    }));
  }
  PlanRates();
  return absl::OkStatus();
}

// Gives the same rates on new workers and on those that have seen other numbers of workers.
void Session::Implementation::PlanRates() {
  for (worker::SessionPart& part : parts) {
    for (size_t i = 0; i < part.rate_factors.size(); ++i) {
      part.optimizer->param_groups()[i].options().set_lr(schedule.peak * part.rate_factors[i]);
    }
    part.rates.emplace(*part.optimizer);
  }
}

absl::Status Session::Implementation::SetRates() {
  const int64_t at = SchedulePlace();
  if (rate_of == nullptr) {
    step_metrics.learning_rate = schedule.At(at);
    for (worker::SessionPart& part : parts) part.rates->Set(*part.optimizer, schedule, at);
    return absl::OkStatus();
  }
  const double rate = rate_of(at);
  if (!std::isfinite(rate) || rate < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the function of LearningRateWith answers ",
                                                   rate, " at step ", at,
                                                   ": a learning rate is a number, 0 or above"));
  }
  step_metrics.learning_rate = rate;
  for (worker::SessionPart& part : parts) {
    for (size_t i = 0; i < part.rate_factors.size(); ++i) {
      part.optimizer->param_groups()[i].options().set_lr(rate * part.rate_factors[i]);
    }
  }
  return absl::OkStatus();
}

absl::Status Session::Implementation::MakeDdp(bool equal) {
  for (worker::SessionPart& part : parts) {
    DistributedDataParallelOptions ddp_options = DdpOptions(options);
    ddp_options.communication_hook = power_sgd;
    ddp_options.init_sync = !equal;
    DDPRUN_ASSIGN_OR_RETURN(part.ddp,
                            DistributedDataParallel::Create(part.module, *context, ddp_options));
    DDPRUN_RETURN_IF_ERROR(part.buckets->Apply());
  }
  return absl::OkStatus();
}

}  // namespace ddprun
