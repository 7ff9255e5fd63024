#include "examples/common/trainer.h"

#include <ATen/CPUGeneratorImpl.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "ddprun/clip_grad_norm.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/parameters.h"
#include "ddprun/start_banner.h"

namespace ddprun::examples {
namespace {

// A schedule falls to this share of its peak.
constexpr double kLeastRateShare = 0.1;
// Steps between two at which the loss is read, for the metrics and to see that it is a number.
constexpr int64_t kNotifyEvery = 10;

// For the random changes of the batch whose first sample has this place in the order of the epoch.
uint64_t BatchSeed(uint64_t seed, uint64_t epoch, uint64_t place) {
  const uint64_t of_epoch = Rng(Rng(seed).Next() ^ epoch).Next();
  return Rng(of_epoch ^ place).Next();
}

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

void Print(const std::string& line) {
  absl::PrintF("%s\n", line);
  std::fflush(stdout);
}

}  // namespace

Trainer::Trainer(const TrainingOptions& options, Context& context, Task& task, Journal journal)
    : options_(options),
      context_(context),
      task_(task),
      journal_(std::move(journal)),
      model_(task.model()),
      sampler_(static_cast<uint64_t>(task.size()), /*rank=*/0, /*world_size=*/1,
               {.seed = static_cast<uint64_t>(options.seed)}) {}

int64_t Trainer::GlobalBatch() const {
  return options_.batch_size * options_.gradient_accumulation_steps *
         static_cast<int64_t>(context_.world_size());
}

int64_t Trainer::StepsPerEpoch() const { return task_.size() / GlobalBatch(); }

int64_t Trainer::SchedulePlace() const {
  if (options_.steps > 0) return progress_.step;
  // Not the number of steps done: after a change of the number of workers steps have another size.
  return progress_.epoch * StepsPerEpoch() + progress_.epoch_samples / GlobalBatch();
}

bool Trainer::Done() const {
  return options_.steps > 0 ? progress_.step >= options_.steps : progress_.epoch >= options_.epochs;
}

LearningRateSchedule Trainer::Schedule() const {
  const double peak = ScaledLearningRate(
      options_.learning_rate, *ParseLearningRateScaling(options_.lr_scaling),
      static_cast<uint64_t>(options_.batch_size), static_cast<uint64_t>(GlobalBatch()));
  return {.kind = *ParseScheduleKind(options_.lr_schedule),
          .peak = peak,
          .warmup_steps = options_.warmup_steps,
          .total_steps = options_.steps > 0 ? options_.steps : options_.epochs * StepsPerEpoch(),
          .least = peak * kLeastRateShare};
}

absl::Status Trainer::Prepare() {
  if (context_.is_main()) {
    Print(absl::StrFormat("%s: %d workers over %s, %d %s to learn from, %d a step", task_.name(),
                          context_.world_size(), context_.backend(), task_.size(),
                          task_.samples_name(), GlobalBatch()));
  }
  if (StepsPerEpoch() == 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the ", task_.size(), " ", task_.samples_name(), " don't fill one step of ", GlobalBatch(),
        " (batch_size x gradient_accumulation_steps x workers): lower batch_size"));
  }
  DDPRUN_ASSIGN_OR_RETURN(precision_, ParseMixedPrecision(options_.mixed_precision));
  schedule_ = Schedule();
  DDPRUN_RETURN_IF_ERROR(schedule_.Check());
  model_->to(context_.device());
  scaler_ = std::make_unique<GradScaler>(
      GradScalerOptions{.enabled = precision_ == MixedPrecision::kFloat16});
  DDPRUN_RETURN_IF_ERROR(MakeOptimizer());
  rates_.emplace(*optimizer_);
  DDPRUN_RETURN_IF_ERROR(Resume());
  return BeginMetrics();
}

absl::Status Trainer::MakeOptimizer() {
  const auto adamw = torch::optim::AdamWOptions(schedule_.peak).weight_decay(options_.weight_decay);
  if (options_.zero_stage == "0") {
    optimizer_ = std::make_unique<FusedAdamW>(Parameters(*model_), adamw);
  } else {
    ZeroOptions zero = {.stage = options_.zero_stage == "1" ? 1 : 2,
                        .find_unused_parameters = options_.find_unused_parameters,
                        .broadcast_buffers = options_.broadcast_buffers};
    if (options_.bucket_cap_mb > 0) zero.bucket_cap_mb = options_.bucket_cap_mb;
    DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<ZeroOptimizer> made,
                            ZeroOptimizer::Create(model_, context_, adamw, zero));
    zero_ = made.get();
    optimizer_ = std::move(made);
    // It averages gradients itself.
    if (options_.zero_stage == "2") return absl::OkStatus();
  }
  DistributedDataParallelOptions options = DdpOptions(options_);
  if (options_.comm_hook == "power_sgd") power_sgd_ = std::make_shared<PowerSgd>();
  options.communication_hook = power_sgd_;
  DDPRUN_ASSIGN_OR_RETURN(ddp_, DistributedDataParallel::Create(model_, context_, options));
  return absl::OkStatus();
}

std::unique_ptr<Checkpointer> Trainer::MakeCheckpointer(const std::string& directory) {
  auto result = std::make_unique<Checkpointer>(
      context_, model_, *optimizer_,
      CheckpointerOptions{.directory = directory,
                          .sharded = zero_ != nullptr,
                          .tell_of_none = options_.resume_from.empty()});
  result->Add("scaler", *scaler_);
  if (power_sgd_ != nullptr) result->Add("power_sgd", *power_sgd_);
  return result;
}

absl::Status Trainer::BeginMetrics() {
  const int64_t steps = progress_.step + schedule_.total_steps - SchedulePlace();
  int64_t parameters = 0;
  for (const torch::Tensor& parameter : Parameters(*model_)) parameters += parameter.numel();
  PrintStartBanner(
      context_, {.program = task_.name(),
                 .precision = options_.mixed_precision == "no" ? "fp32" : options_.mixed_precision,
                 .batch_size = options_.batch_size,
                 .gradient_accumulation_steps = options_.gradient_accumulation_steps,
                 .dataset_samples = task_.size(),
                 .epochs = options_.steps > 0 ? 0 : options_.epochs,
                 .total_steps = steps,
                 .parameters = parameters});
  DDPRUN_ASSIGN_OR_RETURN(metrics_, Metrics::Create(context_, {.output_dir = options_.output_dir,
                                                               .every_steps = kNotifyEvery,
                                                               .total_steps = steps,
                                                               .resumed_step = progress_.step}));
  if (ddp_ != nullptr) metrics_->Watch(*ddp_);
  return absl::OkStatus();
}

absl::Status Trainer::Resume() {
  std::optional<TrainingProgress> found;
  if (!options_.CheckpointDirectory().empty()) {
    checkpointer_ = MakeCheckpointer(options_.CheckpointDirectory());
    DDPRUN_ASSIGN_OR_RETURN(found, checkpointer_->Restore());
  }
  if (!found.has_value() && !options_.resume_from.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(found, RestoreElsewhere());
  }
  if (!found.has_value()) return absl::OkStatus();
  progress_ = *found;
  if (context_.is_main()) {
    Print(absl::StrFormat("resumed at step %d, epoch %d", progress_.step, progress_.epoch));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<TrainingProgress>> Trainer::RestoreElsewhere() {
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<TrainingProgress> found,
                          MakeCheckpointer(options_.resume_from)->Restore());
  if (found.has_value()) return found;
  return absl::NotFoundError(absl::StrCat("--resume_from '", options_.resume_from,
                                          "': no rank finds a checkpoint there; give the directory "
                                          "that holds them, such as OUTPUT_DIR/checkpoints"));
}

absl::Status Trainer::Run() {
  DDPRUN_RETURN_IF_ERROR(Prepare());
  while (!Done()) {
    DDPRUN_RETURN_IF_ERROR(TrainEpoch());
    if (stopped_) return absl::OkStatus();
    if (Done()) break;  // within an epoch
    ++progress_.epoch;
    progress_.epoch_samples = 0;
    if (Done()) break;
    DDPRUN_ASSIGN_OR_RETURN(const std::string figure, Evaluate());
    if (!context_.is_main()) continue;
    Print(absl::StrFormat("epoch %d  step %d  loss %.4f  %s", progress_.epoch, progress_.step,
                          loss_.defined() ? loss_.item<double>() : 0, figure));
  }
  DDPRUN_RETURN_IF_ERROR(SaveNow());
  DDPRUN_ASSIGN_OR_RETURN(const std::string figure, Evaluate());
  if (context_.is_main()) {
    Print(absl::StrFormat("final %s (step %d, world %d, generation %d)", figure, progress_.step,
                          context_.world_size(), context_.generation()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> Trainer::Evaluate() {
  context_.Mark(ProgressPhase::kEvaluation, progress_.step);
  const torch::NoGradGuard no_grad;
  model_->eval();
  const absl::StatusOr<double> figure = task_.Evaluate();
  model_->train();
  DDPRUN_RETURN_IF_ERROR(figure.status());
  metrics_->Scalar("evaluation/" + task_.figure_name(), progress_.step, *figure);
  metrics_->RestartClock();
  return task_.Describe(*figure);
}

Batch Trainer::LoadBatch(const std::vector<int64_t>& order, int64_t place) const {
  const auto world_size = static_cast<int64_t>(context_.world_size());
  const int64_t first = place + context_.rank();
  std::vector<int64_t> samples;
  for (int64_t i = 0; i < options_.batch_size; ++i) {
    samples.push_back(order[static_cast<size_t>(first + i * world_size)]);
  }
  const uint64_t seed =
      BatchSeed(static_cast<uint64_t>(options_.seed), static_cast<uint64_t>(progress_.epoch),
                static_cast<uint64_t>(first));
  return task_.Load(samples, at::make_generator<at::CPUGeneratorImpl>(seed));
}

absl::Status Trainer::TrainEpoch() {
  sampler_.SetEpoch(static_cast<uint64_t>(progress_.epoch));
  const std::vector<int64_t> order = sampler_.Indices();
  // What all ranks have seen of this epoch, however many they were then.
  const int64_t begin = progress_.epoch_samples;
  const int64_t steps = (task_.size() - begin) / GlobalBatch();
  const int64_t accumulated = options_.gradient_accumulation_steps;
  Prefetcher batches(
      [&](int64_t number) {
        return LoadBatch(order, begin + number * GlobalBatch() / accumulated);
      },
      steps * accumulated, options_.num_workers);
  for (int64_t step = 0; step < steps && !Done(); ++step) {
    if (context_.StopAt(progress_.step)) {  // a node is about to be taken away
      stopped_ = true;
      return SaveNow();
    }
    DDPRUN_RETURN_IF_ERROR(TrainStep(batches));
    if (progress_.step % options_.checkpoint_every == 0) DDPRUN_RETURN_IF_ERROR(SaveNow());
  }
  return absl::OkStatus();
}

torch::Tensor Trainer::LossOf(Batch batch) {
  const torch::Device device = context_.device();
  const Autocast autocast(device.type(), precision_);
  const torch::Tensor inputs = batch.inputs.to(device);
  const auto forward = [&] { return task_.Forward(inputs); };
  const torch::Tensor outputs = ddp_ != nullptr ? ddp_->Forward(forward) : forward();
  return task_.Loss(outputs, batch.targets.to(device));
}

void Trainer::Backward(Prefetcher& batches) {
  const Instant asked = MonotonicNow();
  Batch batch = batches.Next();
  const absl::Duration waited = MonotonicNow() - asked;
  step_.data_time += waited;
  context_.AddDataWait(waited);
  torch::Tensor loss = LossOf(std::move(batch));
  if (options_.gradient_accumulation_steps > 1) loss = loss / options_.gradient_accumulation_steps;
  scaler_->Scale(loss).backward();
  // Not read here: a GPU would have to be waited for in every pass.
  const torch::Tensor part = loss.detach().to(torch::kDouble);
  loss_ = loss_.defined() ? loss_ + part : part;
}

absl::Status Trainer::TrainStep(Prefetcher& batches) {
  step_ = {.learning_rate = schedule_.At(SchedulePlace()),
           .samples = options_.batch_size * options_.gradient_accumulation_steps};
  rates_->Set(*optimizer_, schedule_, SchedulePlace());
  zero_ != nullptr ? zero_->ZeroGrad() : ddp_->ZeroGrad();
  loss_ = torch::Tensor();
  for (int64_t left = options_.gradient_accumulation_steps; left > 0; --left) {
    // Gradients are added up here until the last backward pass, which averages them.
    std::optional<DistributedDataParallel::NoSync> no_sync;
    std::optional<ZeroOptimizer::NoSync> zero_no_sync;
    if (left > 1 && ddp_ != nullptr) no_sync.emplace(*ddp_);
    if (left > 1 && ddp_ == nullptr) zero_no_sync.emplace(*zero_);
    Backward(batches);
  }
  DDPRUN_RETURN_IF_ERROR(StepOptimizer());
  ++progress_.step;
  progress_.epoch_samples += GlobalBatch();
  if (options_.step_delay_ms > 0) absl::SleepFor(absl::Milliseconds(options_.step_delay_ms));
  return NotifyStep();
}

absl::Status Trainer::CheckStep() {
  // What overflowed was left out; the loss may have been what did.
  if (!loss_.defined() || !stepped_) return absl::OkStatus();
  return CheckLoss(loss_, *model_);
}

absl::Status Trainer::NotifyStep() {
  step_.step = progress_.step;
  step_.loss = loss_;
  const bool writes = context_.is_main() && journal_.is_open();
  if (writes || progress_.step % kNotifyEvery == 0) DDPRUN_RETURN_IF_ERROR(CheckStep());
  DDPRUN_RETURN_IF_ERROR(metrics_->Step(step_));
  if (!writes) return absl::OkStatus();
  return journal_.Write({.generation = context_.generation(),
                         .rank = context_.rank(),
                         .world = context_.world_size(),
                         .step = progress_.step,
                         .loss = loss_.item<double>()});
}

absl::StatusOr<std::optional<double>> Trainer::Clip() {
  if (options_.max_grad_norm == 0) return std::nullopt;
  DDPRUN_ASSIGN_OR_RETURN(const double norm,
                          scaler_->ClipGradNorm(*optimizer_, *model_, options_.max_grad_norm));
  // Beyond fp16's range there is none, and the scaler leaves this step out.
  return std::isfinite(norm) ? std::optional<double>(norm) : std::nullopt;
}

absl::Status Trainer::StepOptimizer() {
  DDPRUN_ASSIGN_OR_RETURN(step_.gradient_norm, Clip());
  DDPRUN_ASSIGN_OR_RETURN(stepped_, scaler_->Step(*optimizer_));
  return scaler_->Update();
}

absl::Status Trainer::SaveNow() {
  if (checkpointer_ == nullptr) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(CheckStep());  // nothing is resumed from a model that is lost
  const absl::Status saved = checkpointer_->Save(progress_);
  metrics_->RestartClock();
  return saved;
}

}  // namespace ddprun::examples
