// What a session does once, before it trains.
#include <ATen/Parallel.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/utils.h>

#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/parameters.h"
#include "ddprun/start_banner.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {
namespace {

// A schedule falls to this share of its peak.
constexpr double kLeastRateShare = 0.1;

DistributedDataParallelOptions DdpOptions(const TrainingOptions& options) {
  DistributedDataParallelOptions result = {
      .gradient_as_bucket_view = options.gradient_as_bucket_view,
      .find_unused_parameters = options.find_unused_parameters,
      .static_graph = options.static_graph,
      .broadcast_buffers = options.broadcast_buffers,
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

std::unique_ptr<torch::optim::OptimizerOptions> GroupOptions(const OptimizerKind& kind, double rate,
                                                             double weight_decay) {
  const auto make = [&](const auto& one) -> std::unique_ptr<torch::optim::OptimizerOptions> {
    const auto options = OptionsOf(one, rate, weight_decay);
    return std::make_unique<std::decay_t<decltype(options)>>(options);
  };
  return std::visit(make, kind);
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

}  // namespace

absl::Status Session::Implementation::Connect() {
  if (!options.log_level.empty()) SetLogLevel(options.log_level);
  at::set_num_threads(static_cast<int>(options.threads));
  DDPRUN_ASSIGN_OR_RETURN(
      context, Context::Create(
                   {.backend = options.backend, .in_process_restart = options.in_process_restart}));
  torch::manual_seed(static_cast<uint64_t>(options.seed));
  return absl::OkStatus();
}

LearningRateSchedule Session::Implementation::Schedule() const {
  const double peak = ScaledLearningRate(
      options.learning_rate, *ParseLearningRateScaling(options.lr_scaling),
      static_cast<uint64_t>(options.batch_size), static_cast<uint64_t>(GlobalBatch()));
  return {.kind = *ParseScheduleKind(options.lr_schedule),
          .peak = peak,
          .warmup_steps = options.warmup_steps,
          .total_steps = options.steps > 0 ? options.steps : options.epochs * StepsPerEpoch(),
          .least = peak * kLeastRateShare};
}

absl::Status Session::Implementation::Prepare(const OptimizerKind& kind,
                                              std::vector<ParameterGroup> groups) {
  // The weights are the same everywhere; what a model draws while it trains differs by rank.
  torch::manual_seed(static_cast<uint64_t>(options.seed) + context->rank());
  if (context->is_main()) {
    worker::Print(absl::StrFormat("%s: %d workers over %s, %d %s to learn from, %d a step",
                                  settings.name, context->world_size(), context->backend(),
                                  data.size, data.samples_name, GlobalBatch()));
  }
  DDPRUN_RETURN_IF_ERROR(PlanSteps());
  DDPRUN_ASSIGN_OR_RETURN(precision, ParseMixedPrecision(options.mixed_precision));
  model->to(context->device());
  model->train();
  scaler = std::make_unique<GradScaler>(
      GradScalerOptions{.enabled = precision == MixedPrecision::kFloat16});
  DDPRUN_RETURN_IF_ERROR(MakeOptimizer(kind, std::move(groups)));
  rates.emplace(*optimizer);
  place = Place::kBetweenBatches;
  absl::Status started = StartTogether();
  if (!started.ok() && CanRecover(started)) started = Recover(started);
  return started;
}

absl::Status Session::Implementation::PlanSteps() {
  if (StepsPerEpoch() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the ", data.size, " ", data.samples_name, " don't fill one step of ", GlobalBatch(),
        " (batch_size x gradient_accumulation_steps x workers): lower batch_size"));
  }
  schedule = Schedule();
  return schedule.Check();
}

absl::Status Session::Implementation::StartTogether() {
  DDPRUN_ASSIGN_OR_RETURN(const bool others_know, TakeStateOfOthers());
  // Zero averages gradients itself from stage 2 on.
  if (options.zero_stage < "2") DDPRUN_RETURN_IF_ERROR(MakeDdp());
  if (checkpointer == nullptr && !options.CheckpointDirectory().empty()) {
    checkpointer = MakeCheckpointer(options.CheckpointDirectory());
  }
  if (!others_know) DDPRUN_RETURN_IF_ERROR(Resume());
  if (others_know && checkpointer != nullptr) {
    DDPRUN_RETURN_IF_ERROR(checkpointer->GoOnWithOthers());
  }
  DDPRUN_RETURN_IF_ERROR(BeginMetrics());
  has_state = true;
  return absl::OkStatus();
}

absl::StatusOr<std::vector<torch::optim::OptimizerParamGroup>> Session::Implementation::Groups(
    const OptimizerKind& kind, std::vector<ParameterGroup> groups) const {
  std::set<const void*> taken;
  std::vector<torch::optim::OptimizerParamGroup> own;
  for (ParameterGroup& group : groups) {
    if (group.parameters.empty() || !(group.learning_rate_factor > 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "parameter group ", own.size(), " has ", group.parameters.size(),
          " parameters and a learning_rate_factor of ", group.learning_rate_factor,
          "; give it some, and a factor above 0 (or let requires_grad_(false) freeze them)"));
    }
    for (const torch::Tensor& parameter : group.parameters) {
      taken.insert(parameter.unsafeGetTensorImpl());
    }
    own.emplace_back(std::move(group.parameters),
                     GroupOptions(kind, schedule.peak * group.learning_rate_factor,
                                  group.weight_decay.value_or(options.weight_decay)));
  }
  std::vector<torch::Tensor> rest;
  for (const torch::Tensor& parameter : Parameters(*model)) {
    if (!taken.contains(parameter.unsafeGetTensorImpl())) rest.push_back(parameter);
  }
  std::vector<torch::optim::OptimizerParamGroup> all;
  if (!rest.empty()) {
    all.emplace_back(std::move(rest), GroupOptions(kind, schedule.peak, options.weight_decay));
  }
  for (torch::optim::OptimizerParamGroup& group : own) all.push_back(std::move(group));
  return all;
}

absl::Status Session::Implementation::MakeOptimizer(const OptimizerKind& kind,
                                                    std::vector<ParameterGroup> groups) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<torch::optim::OptimizerParamGroup> all,
                          Groups(kind, std::move(groups)));
  const auto make = [&](const auto& one) -> absl::Status {
    const auto defaults = OptionsOf(one, schedule.peak, options.weight_decay);
    if (options.zero_stage == "0") {
      optimizer = Fused(all, defaults);
      return absl::OkStatus();
    }
    ZeroOptions zero_options = {.stage = options.zero_stage[0] - '0',
                                .find_unused_parameters = options.find_unused_parameters,
                                .broadcast_buffers = options.broadcast_buffers,
                                .groups = all};
    if (options.bucket_cap_mb > 0) zero_options.bucket_cap_mb = options.bucket_cap_mb;
    DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<ZeroOptimizer> made,
                            ZeroOptimizer::Create(model, *context, defaults, zero_options));
    zero = made.get();
    optimizer = std::move(made);
    return absl::OkStatus();
  };
  return std::visit(make, kind);
}

absl::Status Session::Implementation::MakeDdp() {
  DistributedDataParallelOptions ddp_options = DdpOptions(options);
  if (options.comm_hook == "power_sgd") power_sgd = std::make_shared<PowerSgd>();
  ddp_options.communication_hook = power_sgd;
  DDPRUN_ASSIGN_OR_RETURN(ddp, DistributedDataParallel::Create(model, *context, ddp_options));
  return absl::OkStatus();
}

std::unique_ptr<Checkpointer> Session::Implementation::MakeCheckpointer(
    const std::string& directory) {
  auto result = std::make_unique<Checkpointer>(
      *context, model, *optimizer,
      CheckpointerOptions{.directory = directory,
                          .sharded = zero != nullptr,
                          .tell_of_none = options.resume_from.empty()});
  result->Add("scaler", *scaler);
  if (power_sgd != nullptr) result->Add("power_sgd", *power_sgd);
  return result;
}

void Session::Implementation::ShowBanner() const {
  int64_t parameters = 0;
  for (const torch::Tensor& parameter : Parameters(*model)) parameters += parameter.numel();
  PrintStartBanner(*context,
                   {.program = settings.name,
                    .precision = options.mixed_precision == "no" ? "fp32" : options.mixed_precision,
                    .batch_size = options.batch_size,
                    .gradient_accumulation_steps = options.gradient_accumulation_steps,
                    .dataset_samples = data.size,
                    .epochs = options.steps > 0 ? 0 : options.epochs,
                    .total_steps = progress.step + schedule.total_steps - SchedulePlace(),
                    .parameters = parameters});
}

absl::Status Session::Implementation::BeginMetrics() {
  if (!options.journal.empty() && context->is_main() && !journal.is_open()) {
    DDPRUN_ASSIGN_OR_RETURN(journal, worker::Journal::Open(options.journal));
  }
  if (!has_state) ShowBanner();
  const int64_t steps = progress.step + schedule.total_steps - SchedulePlace();
  DDPRUN_ASSIGN_OR_RETURN(metrics, Metrics::Create(*context, {.output_dir = options.output_dir,
                                                              .every_steps = worker::kNotifyEvery,
                                                              .total_steps = steps,
                                                              .resumed_step = progress.step}));
  if (ddp != nullptr) metrics->Watch(*ddp);
  return absl::OkStatus();
}

absl::Status Session::Implementation::Resume() {
  std::optional<TrainingProgress> found;
  if (checkpointer != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(found, checkpointer->Restore());
  }
  if (!found.has_value() && !options.resume_from.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(found, RestoreElsewhere());
  }
  if (!found.has_value()) return absl::OkStatus();
  progress = *found;
  if (context->is_main()) {
    worker::Print(absl::StrFormat("resumed at step %d, epoch %d", progress.step, progress.epoch));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<TrainingProgress>> Session::Implementation::RestoreElsewhere() {
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<TrainingProgress> found,
                          MakeCheckpointer(options.resume_from)->Restore());
  if (found.has_value()) return found;
  return absl::NotFoundError(absl::StrCat("--resume_from '", options.resume_from,
                                          "': no rank finds a checkpoint there; give the directory "
                                          "that holds them, such as OUTPUT_DIR/checkpoints"));
}

}  // namespace ddprun
