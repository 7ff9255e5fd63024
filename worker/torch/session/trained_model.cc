#include "worker/torch/session/trained_model.h"

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

namespace ddprun::worker {
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

// What a newer LibTorch finds unchanged in a group's options it takes from the optimizer's. The
// groups' options are whole, so the optimizer has the unchanged ones.
torch::optim::AdamWOptions Unchanged(const AdamW& /*kind*/) { return torch::optim::AdamWOptions(); }

torch::optim::SGDOptions Unchanged(const Sgd& /*kind*/) {
  return torch::optim::SGDOptions(/*lr=*/1e-3);
}

template <typename Kind>
using FusedOf = std::conditional_t<std::is_same_v<Kind, AdamW>, FusedAdamW, FusedSGD>;

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

// A group's parameter of another module: its gradients would be averaged with nobody's, and no
// checkpoint and no new worker would get it. Params: place: of the parameter in the group. parts:
// all of the Session.
absl::Status RefuseForeign(size_t group, size_t place, const torch::Tensor& parameter,
                           const std::vector<SessionPart>& parts) {
  std::string whose = absl::StrCat("of the shape ", c10::str(parameter.sizes()));
  for (const SessionPart& part : parts) {
    for (const NamedTensor& one : NamedParameters(*part.module)) {
      if (!one.tensor.is_same(parameter)) continue;
      whose = absl::StrCat("'", one.name, "' of the module '", part.name, "'");
    }
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "parameter group ", group, ": parameter ", place, ", ", whose,
      ", isn't one of the module that the group was given with, so it would be neither averaged "
      "over the workers nor saved: take it from the parameters() of that module, or "
      "register_parameter() it there"));
}

}  // namespace

absl::Status TrainedModel::Add(SessionPart part) {
  if (absl::StrContains(part.name, '.')) {
    return absl::InvalidArgumentError(
        absl::StrCat("'", part.name, "' can't name a module: leave the '.' out"));
  }
  for (const SessionPart& other : parts_) {
    if (other.name.empty() || part.name.empty() || other.name == part.name) {
      return absl::InvalidArgumentError(
          absl::StrCat("of several modules each needs a name of its own: Add(\"", part.name,
                       "\") comes after Add(\"", other.name, "\")"));
    }
  }
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

absl::Status TrainedModel::Assemble() {
  if (parts_.empty()) {
    return absl::FailedPreconditionError(
        "Prepare() of data alone trains what Add() was given: Add() a module before it");
  }
  const bool is_one = parts_.size() == 1;
  if (!is_one && options_.zero_stage != "0") {
    return absl::InvalidArgumentError(absl::StrCat(
        "--zero_stage ", options_.zero_stage, " trains one module, and the session has ",
        parts_.size(), ": leave it out, or put them into one with one optimizer"));
  }
  if (!is_one && options_.comm_hook == "power_sgd") {
    return absl::InvalidArgumentError(
        "--comm_hook power_sgd keeps what it leaves out of one module's gradients, and the session "
        "has several: take another one");
  }
  if (is_one && parts_.front().name.empty()) {
    module_ = parts_.front().module;
    return absl::OkStatus();
  }
  module_ = std::make_shared<torch::nn::Module>();
  for (const SessionPart& part : parts_) module_->register_module(part.name, part.module);
  return absl::OkStatus();
}

absl::StatusOr<Groups> TrainedModel::GroupsOf(SessionPart& part,
                                              std::vector<double>& decays) const {
  std::set<const void*> own;
  for (const torch::Tensor& parameter : Parameters(*part.module)) {
    own.insert(parameter.unsafeGetTensorImpl());
  }
  std::set<const void*> taken;
  Groups groups;
  for (const ParameterGroup& group : part.groups) {
    if (group.parameters.empty() || !(group.learning_rate_factor > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter group ", groups.size(), " has ", group.parameters.size(),
          " parameters and a learning_rate_factor of ", group.learning_rate_factor,
          "; give it some, and a factor above 0 (or let requires_grad_(false) freeze them)"));
    }
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      const void* parameter = group.parameters[i].unsafeGetTensorImpl();
      if (!own.contains(parameter)) {
        return RefuseForeign(groups.size(), i, group.parameters[i], parts_);
      }
      taken.insert(parameter);
    }
    part.rate_factors.push_back(group.learning_rate_factor);
    decays.push_back(group.weight_decay.value_or(options_.weight_decay));
    groups.push_back({.parameters = group.parameters,
                      .learning_rate = schedule_.peak * group.learning_rate_factor});
  }
  std::vector<torch::Tensor> rest;
  for (const torch::Tensor& parameter : Parameters(*part.module)) {
    if (!taken.contains(parameter.unsafeGetTensorImpl())) rest.push_back(parameter);
  }
  if (rest.empty()) return groups;
  part.rate_factors.insert(part.rate_factors.begin(), 1);
  decays.insert(decays.begin(), options_.weight_decay);
  groups.insert(groups.begin(), {.parameters = std::move(rest), .learning_rate = schedule_.peak});
  return groups;
}

absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>> TrainedModel::MakeOptimizer(
    SessionPart& part) {
  using Made = absl::StatusOr<std::unique_ptr<torch::optim::Optimizer>>;
  std::vector<double> decays;
  DDPRUN_ASSIGN_OR_RETURN(const Groups groups, GroupsOf(part, decays));
  const auto make = [&](const auto& one) -> Made {
    using Kind = std::decay_t<decltype(one)>;
    if constexpr (std::is_same_v<Kind, AnyOptimizer>) {
      DDPRUN_RETURN_IF_ERROR(RefuseOptions(one.name, options_, part.groups));
      std::unique_ptr<torch::optim::Optimizer> made = one.make(groups);
      // Checked now instead of at the first checkpoint.
      DDPRUN_RETURN_IF_ERROR(GetOptimizerState(*made).status());
      return made;
    } else {
      const auto defaults = Unchanged(one);
      const auto all = WithOptions(one, groups, decays);
      if (options_.zero_stage == "0") return std::make_unique<FusedOf<Kind>>(all, defaults);
      ZeroOptions zero_options = {.stage = options_.zero_stage[0] - '0',
                                  .find_unused_parameters = options_.find_unused_parameters,
                                  .broadcast_buffers = options_.broadcast_buffers,
                                  .groups = all};
      if (options_.bucket_cap_mb > 0) zero_options.bucket_cap_mb = options_.bucket_cap_mb;
      make_zero_ = [this, defaults, zero_options](Context& context, bool init_sync) {
        ZeroOptions with_sync = zero_options;
        with_sync.init_sync = init_sync;
        return ZeroOptimizer::Create(module_, context, defaults, with_sync);
      };
      return nullptr;
    }
  };
  return CatchExceptions([&]() -> Made { return std::visit(make, part.kind); });
}

absl::Status TrainedModel::MakeOptimizers() {
  for (SessionPart& part : parts_) {
    part.buckets = std::make_unique<BucketsCheckpoint>(part.ddp);
    part.trained.emplace(*part.module);
  }
  std::vector<OptimizerSet::Part> made;
  for (SessionPart& part : parts_) {
    DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<torch::optim::Optimizer> one, MakeOptimizer(part));
    if (one == nullptr) return absl::OkStatus();  // ZeRO: made later, of the only part
    part.optimizer = one.get();
    made.push_back({.name = part.name, .optimizer = std::move(one)});
  }
  if (parts_.size() == 1) {
    optimizer_ = std::move(made.front().optimizer);
  } else {
    DDPRUN_RETURN_IF_ERROR(CatchExceptions([&] {
      optimizer_ = std::make_unique<OptimizerSet>(std::move(made));
      return absl::OkStatus();
    }));
  }
  PlanRates();
  return absl::OkStatus();
}

void TrainedModel::SetRate(SessionPart& part, double rate) {
  for (size_t i = 0; i < part.rate_factors.size(); ++i) {
    part.optimizer->param_groups()[i].options().set_lr(rate * part.rate_factors[i]);
  }
}

std::map<std::string, CheckpointedState*> TrainedModel::States() const {
  std::map<std::string, CheckpointedState*> states = {{"scaler", scaler_.get()}};
  for (const SessionPart& part : parts_) {
    if (options_.zero_stage >= "2") continue;
    states[part.name.empty() ? "buckets" : "buckets-" + part.name] = part.buckets.get();
  }
  return states;
}

// Gives the same rates on new workers and on those that have seen other numbers of workers.
void TrainedModel::PlanRates() {
  for (SessionPart& part : parts_) {
    SetRate(part, schedule_.peak);
    part.rates.emplace(*part.optimizer);
  }
}

absl::Status TrainedModel::Plan(const LearningRateSchedule& schedule) {
  schedule_ = schedule;
  if (optimizer_ != nullptr) PlanRates();
  return schedule_.Check();
}

absl::StatusOr<double> TrainedModel::SetRates(int64_t place) {
  if (rate_of_ == nullptr) {
    for (SessionPart& part : parts_) part.rates->Set(*part.optimizer, schedule_, place);
    return schedule_.At(place);
  }
  const double rate = rate_of_(place);
  if (!std::isfinite(rate) || rate < 0) {
    return absl::InvalidArgumentError(absl::StrCat("the function of LearningRateWith answers ",
                                                   rate, " at step ", place,
                                                   ": a learning rate is a number, 0 or above"));
  }
  for (SessionPart& part : parts_) SetRate(part, rate);
  return rate;
}

absl::Status TrainedModel::Begin(torch::Device device) {
  DDPRUN_ASSIGN_OR_RETURN(precision_, ParseMixedPrecision(options_.mixed_precision));
  device_ = device.type();
  module_->to(device);
  scaler_ = std::make_unique<GradScaler>(
      GradScalerOptions{.enabled = precision_ == MixedPrecision::kFloat16});
  if (options_.comm_hook == "power_sgd") {
    power_sgd_ = std::make_shared<PowerSgd>();
    power_sgd_of_all_ = std::make_unique<PowerSgdOfAll>(*power_sgd_);
  }
  return MakeOptimizers();
}

absl::Status TrainedModel::Divide(Context& context, bool init_sync) {
  if (zero_ != nullptr) {
    const TrainedSet::Flags flags(*parts_.front().trained);
    DDPRUN_RETURN_IF_ERROR(zero_->Rejoin(context, init_sync));
    if (average_ != nullptr) average_->Forget();  // restored with the state
    PlanRates();
  } else if (make_zero_ != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<ZeroOptimizer> made, make_zero_(context, init_sync));
    zero_ = made.get();
    optimizer_ = std::move(made);
    parts_.front().optimizer = zero_;
    PlanRates();
  }
  if (average_ == nullptr && options_.ema_decay > 0) {
    average_ = std::make_unique<ExponentialMovingAverage>(module_, *optimizer_, options_.ema_decay);
  }
  return absl::OkStatus();
}

absl::Status TrainedModel::Connect(Context& context, bool equal) {
  for (SessionPart& part : parts_) {
    const TrainedSet::Flags flags(*part.trained);
    if (!equal) part.buckets->Forget();  // a checkpoint's come with it
    // Zero averages gradients itself from stage 2 on.
    if (options_.zero_stage < "2") {
      DistributedDataParallelOptions ddp_options = DdpOptions(options_);
      ddp_options.communication_hook = power_sgd_;
      ddp_options.init_sync = !equal || zero_ != nullptr;
      DDPRUN_ASSIGN_OR_RETURN(part.ddp,
                              DistributedDataParallel::Create(part.module, context, ddp_options));
      DDPRUN_RETURN_IF_ERROR(part.buckets->Apply());
    }
    part.watch = std::make_unique<GradientWatch>(*part.module);
  }
  return absl::OkStatus();
}

// A new rank of the next generation knows nothing of a step that is half done, so a survivor that
// finished it would call collectives alone.
void TrainedModel::LetGo() {
  EndPass();
  for (SessionPart& part : parts_) {
    part.has_gradients = part.is_averaged = part.has_stepped = false;
    part.ddp.reset();
  }
  if (zero_ != nullptr) zero_->LetGo();
  // Gradients may be views into the buckets of the objects that were just destroyed.
  for (torch::Tensor& parameter : Parameters(*module_)) parameter.mutable_grad().reset();
}

}  // namespace ddprun::worker
