// The setup of a session, once before it trains.
#include <ATen/Parallel.h>
#include <torch/utils.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "ddprun/parameters.h"
#include "ddprun/start_banner.h"
#include "worker/torch/context/compare_texts.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/context/process_context.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/errors/failure_notice.h"
#include "worker/torch/optim/master_parameters.h"
#include "worker/torch/session/session_implementation.h"
#include "worker/torch/session/start_note.h"

namespace ddprun {
namespace {

// A schedule falls to this share of its peak.
constexpr double kLeastRateShare = 0.1;

// The precision of products, or, without mixed precision, of parameters.
std::string PrecisionText(const std::string& mixed_precision, const torch::nn::Module& module) {
  if (mixed_precision != "no") return mixed_precision;
  for (const torch::Tensor& parameter : Parameters(module)) {
    if (!worker::HasMaster(parameter.scalar_type())) continue;
    return absl::StrCat(parameter.scalar_type() == torch::kHalf ? "fp16" : "bf16",
                        " with fp32 masters");
  }
  return "fp32";
}

}  // namespace

// True if surviving costs a step next to nothing. With ZeRO a lost share then comes back from a
// checkpoint, because copies in other workers' memory must be asked for.
bool Session::Implementation::SurvivesUnasked() const {
  if (options.zero_stage == "0") return true;
  return !options.CheckpointDirectory().empty() && options.comm_hook != "power_sgd";
}

absl::Status Session::Implementation::Connect() {
  if (!options.log_level.empty()) SetLogLevel(options.log_level);
  at::set_num_threads(static_cast<int>(options.threads));
  const std::optional<bool>& survive = options.in_process_restart;
  DDPRUN_ASSIGN_OR_RETURN(
      context, worker::TakeProcessContext(
                   {.backend = options.backend,
                    .in_process_restart = survive.value_or(false),
                    .in_process_restart_on_cpu = !survive.has_value() && SurvivesUnasked()}));
  session_number = ++context->implementation().sessions;
  if (session_number > 1) worker::WithdrawDeparture();
  torch::manual_seed(static_cast<uint64_t>(options.seed));
  return TakeFolder();
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

absl::Status Session::Implementation::Prepare() {
  DDPRUN_RETURN_IF_ERROR(BringTogether());
  // The weights are the same everywhere; what a model draws while it trains differs by rank.
  torch::manual_seed(static_cast<uint64_t>(options.seed) + context->rank());
  if (context->is_main()) {
    worker::Print(absl::StrFormat("%s: %s over %s, %d %s to learn from, %d a step", settings.name,
                                  CountText(context->world_size(), "worker"), context->backend(),
                                  data.size, data.samples_name, GlobalBatch()));
  }
  DDPRUN_RETURN_IF_ERROR(PrepareData());
  DDPRUN_RETURN_IF_ERROR(PlanSteps());
  facts = worker::OptionFacts(options);
  facts.push_back(
      absl::StrCat(data.size, " ", data.samples_name, data.shuffle ? "" : ", not shuffled"));
  for (const worker::SessionPart& part : parts) {
    if (!part.name.empty()) facts.push_back(absl::StrCat("module '", part.name, "'"));
    for (std::string& fact : worker::OptimizerFacts(part.kind, part.groups)) {
      facts.push_back(std::move(fact));
    }
  }
  sample_facts = worker::SampleFacts(data);
  DDPRUN_ASSIGN_OR_RETURN(precision, ParseMixedPrecision(options.mixed_precision));
  model->to(context->device());
  model->train();
  scaler = std::make_unique<GradScaler>(
      GradScalerOptions{.enabled = precision == MixedPrecision::kFloat16});
  if (options.comm_hook == "power_sgd") {
    power_sgd = std::make_shared<PowerSgd>();
    power_sgd_of_all = std::make_unique<worker::PowerSgdOfAll>(*power_sgd);
  }
  DDPRUN_RETURN_IF_ERROR(MakeOptimizers());
  place = Place::kBetweenBatches;
  absl::Status started = StartTogether();
  if (!started.ok() && CanRecover(started)) started = Recover(started);
  return started;
}

absl::Status Session::Implementation::PlanSteps() {
  schedule = Schedule();
  if (optimizer != nullptr) PlanRates();
  return schedule.Check();
}

absl::Status Session::Implementation::StartTogether() {
  // Batches that were read ahead were dealt for the ranks of the generation before.
  DDPRUN_RETURN_IF_ERROR(loader->Reform(context->rank(), context->world_size()));
  if (checkpointer != nullptr) checkpointer->LeaveGeneration();
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<worker::StartNote> notes, AskWhoHasState());
  DDPRUN_RETURN_IF_ERROR(CompareFacts(notes));
  if (make_zero != nullptr) DDPRUN_RETURN_IF_ERROR(DealOut());
  if (average == nullptr && options.ema_decay > 0) {
    average = std::make_unique<ExponentialMovingAverage>(model, *optimizer, options.ema_decay);
  }
  if (checkpointer == nullptr && !options.CheckpointDirectory().empty()) {
    checkpointer = MakeCheckpointer(options.CheckpointDirectory());
  }
  // Before all else, so that a rank that soon has the state alone can save it as the newest.
  if (others_have_state && checkpointer != nullptr) checkpointer->GoOnAfter(newest_fence);
  if (checkpointer != nullptr && job == nullptr) DDPRUN_RETURN_IF_ERROR(checkpointer->Claim());
  DDPRUN_ASSIGN_OR_RETURN(const bool others_know, TakeStateOfOthers(notes));
  for (worker::SessionPart& part : parts) {
    if (!others_know) part.buckets->Forget();  // a checkpoint's come with it
  }
  // Zero averages gradients itself from stage 2 on.
  if (options.zero_stage < "2") DDPRUN_RETURN_IF_ERROR(MakeDdp(others_know && zero == nullptr));
  for (worker::SessionPart& part : parts) {
    part.watch = std::make_unique<worker::GradientWatch>(*part.module);
  }
  const bool has_it_alone = job != nullptr && zero == nullptr && state_generation.has_value();
  if (!others_know && !has_it_alone) DDPRUN_RETURN_IF_ERROR(Resume());
  if (job != nullptr) checkpointer.reset();  // the other ranks have saved this Session
  if (KeepsReplicas()) DDPRUN_RETURN_IF_ERROR(replicas->Begin(progress));
  DDPRUN_RETURN_IF_ERROR(BeginMetrics());
  saved.reset();  // some may be new
  save_clock = worker::SaveClock(absl::Minutes(options.checkpoint_minutes));
  save_clock.Restart(MonotonicNow());
  if (!others_know) state_generation = context->generation();
  // A checkpoint of an epoch's last step is from before its evaluation, and so are copies of
  // shares. An evaluation may change the program's own states: if ranks have gone back to such a
  // state, it is made again. (A new rank doesn't know the evaluations yet.)
  evaluation_is_due = IsEvaluated(progress) && loop_marks.evaluated_step != progress.step &&
                      (!own.empty() || !evaluation_is_done);
  return absl::OkStatus();
}

worker::StartNote Session::Implementation::OwnNote() {
  worker::StartNote note = {.session = session_number,
                            .facts = worker::Fingerprint(facts),
                            .samples = worker::Fingerprint(sample_facts),
                            .host = context->implementation().plan.host};
  if (checkpointer != nullptr) note.fence = checkpointer->fence();
  if (replicas != nullptr) note.records = replicas->Records();
  note.offer.step_time = step_time;
  if (!state_generation.has_value()) return note;
  note.knows = evaluation_is_due ? worker::StartNote::Knows::kTrainingBeforeItsEvaluation
                                 : worker::StartNote::Knows::kTraining;
  if (options.zero_stage != "0") return note;
  note.offer.version = {.progress = progress, .generation = *state_generation, .marks = Marks()};
  note.offer.bytes = worker::StateBytes(StateOfAll());
  return note;
}

absl::StatusOr<std::vector<worker::StartNote>> Session::Implementation::AskWhoHasState() {
  using Knows = worker::StartNote::Knows;
  if (!context->CanRejoin()) return std::vector<worker::StartNote>();
  std::vector<worker::StartNote> notes;
  bool all_are_here = false;
  while (!all_are_here) {
    DDPRUN_ASSIGN_OR_RETURN(notes, worker::ExchangeStartNotes(*context, OwnNote()));
    const auto [first, last] = std::minmax_element(
        notes.begin(), notes.end(),
        [](const auto& one, const auto& other) { return one.session < other.session; });
    all_are_here = first->session == last->session;
    if (last->session <= session_number) continue;
    DDPRUN_RETURN_IF_ERROR(GoAlone(last->session));
    others_have_state = false;
    return std::vector<worker::StartNote>();
  }
  Knows most = Knows::kNothing;
  uint64_t fence = 0;
  for (const worker::StartNote& note : notes) {
    most = std::max(most, note.knows);
    fence = std::max(fence, note.fence);
  }
  others_have_state = most != Knows::kNothing;
  evaluation_is_done = most == Knows::kTraining;
  newest_fence = fence;
  return notes;
}

absl::Status Session::Implementation::CompareFacts(const std::vector<worker::StartNote>& notes) {
  if (context->world_size() == 1) return absl::OkStatus();
  const auto differ = [&](uint64_t worker::StartNote::*of) {
    return notes.empty() || std::any_of(notes.begin(), notes.end(), [&](const auto& note) {
             return note.*of != notes.front().*of;
           });
  };
  if (differ(&worker::StartNote::facts)) {
    DDPRUN_RETURN_IF_ERROR(
        worker::CompareTexts(*context, facts, "the training",
                             "start every rank with the same options and all of the "
                             "data: a Session deals the samples out"));
  }
  // Reported once. The condition is the same on all ranks, also on new ones: otherwise some ranks
  // would wait in CompareTexts for others that don't call it.
  if (others_have_state || !differ(&worker::StartNote::samples)) return absl::OkStatus();
  const absl::Status alike = worker::CompareTexts(
      *context, sample_facts, "what is learned from",
      "a Session deals the samples out: every rank needs all of them, in one order; where the "
      "program itself changes them at random, take the generator that `load` gets");
  if (!absl::IsInvalidArgument(alike)) return alike;
  if (context->is_main()) Notify(std::string(alike.message()));
  return absl::OkStatus();
}

absl::Status Session::Implementation::DealOut() {
  // A new rank 0's initial state must not be sent to the others.
  if (zero != nullptr) {
    DDPRUN_RETURN_IF_ERROR(zero->Rejoin(*context, /*init_sync=*/!others_have_state));
    if (average != nullptr) average->Forget();  // restored with the state
  } else {
    DDPRUN_ASSIGN_OR_RETURN(std::unique_ptr<ZeroOptimizer> made, make_zero(!others_have_state));
    zero = made.get();
    optimizer = std::move(made);
    parts.front().optimizer = zero;
  }
  PlanRates();
  return absl::OkStatus();
}

std::map<std::string, std::string> Session::Implementation::CheckpointNotes() const {
  std::map<std::string, std::string> notes = {
      {"options", absl::StrJoin(worker::OptionFacts(options), "\n")}};
  for (const worker::SessionPart& part : parts) {
    const std::string prefix = part.name.empty() ? "" : absl::StrCat(part.name, ".");
    notes[prefix + "optimizer"] = worker::OptimizerFacts(part.kind, {}).front();
    notes[prefix + "optimizer_parameters"] =
        absl::StrJoin(worker::ParameterNames(*part.module, *part.optimizer), "\n");
  }
  return notes;
}

std::unique_ptr<Checkpointer> Session::Implementation::MakeCheckpointer(
    const std::string& directory, const std::string& only) {
  auto result = std::make_unique<Checkpointer>(
      *context, model, *optimizer,
      CheckpointerOptions{.directory = directory,
                          .keep = static_cast<uint32_t>(options.keep_checkpoints),
                          .sharded = zero != nullptr,
                          .tell_of_none = options.resume_from.empty(),
                          .only = only,
                          .notes = CheckpointNotes()});
  for (const auto& [name, state] : ExtrasOfAll()) result->Add(name, *state);
  if (power_sgd != nullptr) result->Add("power_sgd", *power_sgd);
  if (average != nullptr) result->Add(*average);
  return result;
}

void Session::Implementation::ShowBanner() const {
  int64_t parameters = 0;
  for (const torch::Tensor& parameter : Parameters(*model)) parameters += parameter.numel();
  PrintStartBanner(*context, {.program = settings.name,
                              .precision = PrecisionText(options.mixed_precision, *model),
                              .batch_size = options.batch_size,
                              .gradient_accumulation_steps = options.gradient_accumulation_steps,
                              .global_batch = GlobalBatch(),
                              .dataset_samples = data.size,
                              .steps_per_epoch = StepsPerEpoch(),
                              .epochs = options.steps > 0 ? 0 : options.epochs,
                              .total_steps = progress.step + schedule.total_steps - SchedulePlace(),
                              .parameters = parameters});
}

absl::Status Session::Implementation::BeginMetrics() {
  if (!options.journal.empty() && Speaks() && !journal.is_open()) {
    DDPRUN_ASSIGN_OR_RETURN(journal, worker::Journal::Open(options.journal));
  }
  if (!std::exchange(has_begun, true) && job == nullptr) ShowBanner();
  const int64_t steps = progress.step + schedule.total_steps - SchedulePlace();
  DDPRUN_ASSIGN_OR_RETURN(
      metrics, Metrics::Create(*context, {.output_dir = job == nullptr ? options.output_dir : "",
                                          .every_steps = worker::kNotifyEvery,
                                          .total_steps = steps,
                                          .resumed_step = progress.step}));
  for (const worker::SessionPart& part : parts) {
    if (part.ddp != nullptr) metrics->Watch(*part.ddp);
  }
  return absl::OkStatus();
}

}  // namespace ddprun
