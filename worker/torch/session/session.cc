#include "ddprun/session.h"

#include <ATen/core/grad_mode.h>
#include <torch/utils.h>

#include <cmath>
#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "ddprun/clip_grad_norm.h"
#include "worker/torch/checkpoint/checkpoint_exchange.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/errors/failure_notice.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {
namespace {

absl::Status Misuse(const std::string& what) { return absl::FailedPreconditionError(what); }

}  // namespace

int64_t Session::Implementation::GlobalBatch() const {
  return constant_batch > 0 ? constant_batch
                            : BatchPerRank() * static_cast<int64_t>(context->world_size());
}

int64_t Session::Implementation::StepsPerEpoch() const {
  return (data.size + GlobalBatch() - 1) / GlobalBatch();
}

int64_t Session::Implementation::SchedulePlace() const {
  if (options.steps > 0) return progress.step;
  // Not the number of steps done: after a change of the number of workers steps have another size.
  return progress.epoch * StepsPerEpoch() + progress.epoch_samples / GlobalBatch();
}

bool Session::Implementation::DoneAt(const TrainingProgress& there) const {
  return options.steps > 0 ? there.step >= options.steps : there.epoch >= options.epochs;
}

absl::StatusOr<const Batch*> Session::Implementation::Advance() {
  switch (place) {
    case Place::kUnprepared:
      return Misuse("Batches() before Prepare(): there is no model yet that learns from them");
    case Place::kBatch:
    case Place::kBackwardDone:
      return Misuse(absl::StrCat(
          "a batch of step ", progress.step + 1, " got no ",
          place == Place::kBatch ? "Backward() and Step()" : "Step()",
          ": each batch needs both, accumulated ones too (Step() knows which is the step's last)"));
    case Place::kEnded:
      return nullptr;
    case Place::kBetweenBatches:
      DDPRUN_RETURN_IF_ERROR(optimizer_steps.Check(*optimizer, progress.step));
      break;
  }
  if (passes_left == 0) {
    DDPRUN_ASSIGN_OR_RETURN(const bool more, BeginStepAnywhere());
    if (!more) {
      loader.reset();
      place = Place::kEnded;
      return nullptr;
    }
  }
  TakeBatch();
  return &pass.batch;
}

absl::StatusOr<bool> Session::Implementation::BeginStepAnywhere() {
  while (true) {
    absl::Status ended = std::exchange(broken, absl::OkStatus());
    if (ended.ok()) {
      absl::StatusOr<bool> more = worker::CatchExceptions([this] { return BeginStep(); });
      if (more.ok() || !CanRecover(more.status())) return more;
      ended = more.status();
    }
    DDPRUN_RETURN_IF_ERROR(Recover(ended));
  }
}

absl::StatusOr<bool> Session::Implementation::BeginStep() {
  if (context->GenerationIsOver()) {
    return absl::UnavailableError(absl::StrCat(worker::kPeerErrorPrefix, "the generation is over"));
  }
  while (true) {
    if (Done()) {
      DDPRUN_RETURN_IF_ERROR(End());
      return false;
    }
    if (!epoch_is_over) break;
    DDPRUN_RETURN_IF_ERROR(EndEpoch());
    epoch_is_over = false;
  }
  // A node is about to be taken away. Where nothing can be saved, but others live on, on other
  // nodes, they have what would be lost if all of them stopped.
  const bool others_live_on =
      context->CanRejoin() && context->local_world_size() < context->world_size();
  const bool stops = checkpointer != nullptr || !others_live_on;
  if (stops && context->StopAt(progress.step)) {
    stopped = true;
    DDPRUN_RETURN_IF_ERROR(SaveAndWait());
    return false;
  }
  if (!stops) context->Mark(ProgressPhase::kTrain, progress.step);
  // Shares that are lost with their worker come back from a checkpoint, which so there always is.
  const bool has_shares = zero != nullptr && context->CanRejoin() && !KeepsReplicas();
  if (has_shares && progress.step == 0) DDPRUN_RETURN_IF_ERROR(Save());
  step_began = MonotonicNow();
  step_metrics = {.learning_rate = schedule.At(SchedulePlace())};
  SeedGenerators();
  DDPRUN_RETURN_IF_ERROR(TakeShare());
  rates->Set(*optimizer, schedule, SchedulePlace());
  zero != nullptr ? zero->ZeroGrad() : ddp->ZeroGrad();
  loss = torch::Tensor();
  passes_left = static_cast<int64_t>(passes.size());
  KeepStepStart();
  return true;
}

// Where random numbers of a step come from: seed, step and rank alone, the same whoever computes it
// and whatever came before. So a killed rank's generator needs no copy; a step that is done again,
// or after a resume, draws the same dropout; and an evaluation takes no number from a step. The
// batches' own generators come from the samples (LoadPass). All passes of a step draw one after the
// other. Before a save, too: what a rank has drawn since isn't the same on one that is new.
// Takes a microsecond.
void Session::Implementation::SeedGenerators(bool of_evaluation) const {
  const auto seed = static_cast<uint64_t>(options.seed);
  worker::SeedGenerators(context->device(), of_evaluation ? ~seed : seed, progress.step,
                         context->rank());
}

absl::Status Session::Implementation::EndEpoch() {
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<double> mean, epoch_loss.Mean(*context));
  DDPRUN_ASSIGN_OR_RETURN(const std::string figure, Evaluate());
  if (!context->is_main()) return absl::OkStatus();
  worker::Print(absl::StrCat("epoch ", progress.epoch, "  step ", progress.step,
                             // Unknown where the job was resumed at the epoch's end.
                             mean.has_value() ? absl::StrFormat("  loss %.4f", *mean) : "",
                             figure.empty() ? "" : absl::StrCat("  ", figure)));
  return absl::OkStatus();
}

absl::Status Session::Implementation::End() {
  DDPRUN_RETURN_IF_ERROR(Save());
  DDPRUN_ASSIGN_OR_RETURN(const std::string figure, Evaluate());
  if (checkpointer != nullptr) {
    DDPRUN_RETURN_IF_ERROR(checkpointer->Wait());
  }
  if (!context->is_main()) return absl::OkStatus();
  worker::Print(absl::StrFormat("final%s (step %d, world %d, generation %d)",
                                figure.empty() ? "" : absl::StrCat(" ", figure), progress.step,
                                context->world_size(), context->generation()));
  return absl::OkStatus();
}

absl::StatusOr<std::string> Session::Implementation::Evaluate() {
  if (evaluation.figure == nullptr) return "";
  context->Mark(ProgressPhase::kEvaluation, progress.step);
  DDPRUN_ASSIGN_OR_RETURN(const double figure, Figure());
  metrics->Scalar("evaluation/" + evaluation.name, progress.step, figure);
  metrics->RestartClock();
  DDPRUN_RETURN_IF_ERROR(SaveIfBest(figure));
  return evaluation.describe != nullptr ? evaluation.describe(figure)
                                        : absl::StrFormat("%s %.4f", evaluation.name, figure);
}

absl::StatusOr<double> Session::Implementation::Figure() {
  const torch::NoGradGuard no_grad;
  std::optional<ExponentialMovingAverage::InPlace> averaged;
  if (average != nullptr) averaged.emplace(*average);
  // Ranks may make different numbers of passes.
  std::optional<ZeroOptimizer::WholeParameters> whole;
  if (zero != nullptr) whole.emplace(*zero);
  model->eval();
  SeedGenerators(/*of_evaluation=*/true);
  const double figure = evaluation.figure();
  model->train();
  whole.reset();
  if (averaged.has_value()) DDPRUN_RETURN_IF_ERROR(averaged->PutBack());
  return figure;
}

void Session::Implementation::TakeBatch() {
  pass = std::move(passes.back());
  passes.pop_back();
  Batch& batch = pass.batch;
  batch.inputs = batch.inputs.to(context->device());
  if (batch.targets.defined()) batch.targets = batch.targets.to(context->device());
  if (passes_left > 1 && ddp != nullptr) no_sync.emplace(*ddp);
  // In stage 3 there may be no memory for all gradients of a rank.
  if (passes_left > 1 && options.zero_stage == "2") zero_no_sync.emplace(*zero);
  autocast.emplace(context->device().type(), precision);
  forward_called = false;
  place = Place::kBatch;
}

absl::Status Session::Implementation::CheckBackward(const torch::Tensor& of_batch) const {
  if (place == Place::kBackwardDone) {
    return Misuse(
        "Backward() was called twice for one batch: gradients are averaged in the first; add the "
        "losses up and call it once");
  }
  if (place != Place::kBatch) {
    return Misuse(
        "Backward() without a batch: it belongs inside `for (const Batch& batch : "
        "session.Batches())`");
  }
  if (!forward_called) {
    return Misuse(
        "Backward() of a loss that the session's model had no part in: call what Prepare() "
        "returned instead of the module, or gradients would not be averaged over the workers");
  }
  if (!of_batch.defined() || of_batch.numel() != 1) {
    return absl::InvalidArgumentError(absl::StrCat(
        "Backward() takes a loss of one number, this one is ",
        of_batch.defined() ? absl::StrCat("[", absl::StrJoin(of_batch.sizes(), ", "), "]")
                           : std::string("undefined"),
        ": call mean()"));
  }
  if (!of_batch.requires_grad()) {
    return absl::InvalidArgumentError(
        "the loss depends on no parameter that is trained: was it computed from a detach()ed "
        "tensor, or are all parameters frozen?");
  }
  return absl::OkStatus();
}

absl::StatusOr<bool> Session::Implementation::EndBatch() {
  if (place == Place::kBatch) {
    return Misuse("Step() before Backward(): this batch has no gradients yet");
  }
  if (place != Place::kBackwardDone) {
    return Misuse(
        "Step() without a batch: it comes once for each, after Backward(); was it called twice?");
  }
  DDPRUN_RETURN_IF_ERROR(optimizer_steps.Check(*optimizer, progress.step));
  no_sync.reset();
  zero_no_sync.reset();
  place = Place::kBetweenBatches;
  if (!broken.ok()) passes_left = 1;  // the others of this step are in vain
  if (--passes_left > 0 || !broken.ok()) return false;
  const int64_t before = progress.step;
  const absl::Status ended = EndStep();
  if (!ended.ok() && !CanRecover(ended)) return ended;
  if (!ended.ok()) Break(ended);
  return stepped && progress.step > before;  // ZeRO's optimizer can break, too
}

absl::Status Session::Implementation::EndStep() {
  if (healing == nullptr) step_time = MonotonicNow() - step_began;
  DDPRUN_RETURN_IF_ERROR(FinishHealing());
  if (replicas != nullptr) DDPRUN_RETURN_IF_ERROR(replicas->Commit());
  bool buckets_changed = false;
  if (ddp != nullptr) {
    DDPRUN_ASSIGN_OR_RETURN(buckets_changed, ddp->FinishStep());
  }
  DDPRUN_RETURN_IF_ERROR(StepOptimizer());
  ++progress.step;
  state_generation = context->generation();
  if (buckets_changed) buckets_checkpoint->Keep();
  DDPRUN_RETURN_IF_ERROR(CommitShare());
  epoch_loss.Add(step_share.epoch, progress.step, loss, step_metrics.samples);
  DDPRUN_RETURN_IF_ERROR(EndHealing());
  if (replicas != nullptr && progress.step % options.replicate_every == 0) {
    DDPRUN_RETURN_IF_ERROR(replicas->Begin(progress));
  }
  if (options.step_delay_ms > 0) absl::SleepFor(absl::Milliseconds(options.step_delay_ms));
  DDPRUN_RETURN_IF_ERROR(ReportStep());
  DDPRUN_ASSIGN_OR_RETURN(const bool is_due, SavingIsDue());
  return is_due ? Save() : absl::OkStatus();
}

absl::StatusOr<std::optional<double>> Session::Implementation::Clip() {
  if (options.max_grad_norm == 0) return std::nullopt;
  DDPRUN_ASSIGN_OR_RETURN(const double norm,
                          scaler->ClipGradNorm(*optimizer, *model, options.max_grad_norm));
  // Beyond fp16's range there is none, and the scaler leaves this step out.
  return std::isfinite(norm) ? std::optional<double>(norm) : std::nullopt;
}

absl::Status Session::Implementation::StepOptimizer() {
  if (context->CanRejoin()) {  // else a broken group is this process' end
    DDPRUN_RETURN_IF_ERROR(context->AwaitResults());
  }
  DDPRUN_ASSIGN_OR_RETURN(step_metrics.gradient_norm, Clip());
  const absl::StatusOr<bool> taken = scaler->Step(*optimizer);
  optimizer_steps.Note(*optimizer);
  DDPRUN_ASSIGN_OR_RETURN(stepped, taken);
  if (stepped && average != nullptr) average->Update();
  return scaler->Update();
}

absl::Status Session::Implementation::CheckStep() {
  // What overflowed was left out; the loss may have been what did.
  if (!loss.defined() || !stepped) return absl::OkStatus();
  return CheckLoss(loss, *model);
}

absl::Status Session::Implementation::ReportStep() {
  step_metrics.step = progress.step;
  step_metrics.loss = loss;
  const bool writes = context->is_main() && journal.is_open() && loss.defined();
  if (writes || progress.step % worker::kNotifyEvery == 0) DDPRUN_RETURN_IF_ERROR(CheckStep());
  DDPRUN_RETURN_IF_ERROR(metrics->Step(step_metrics));
  if (!writes) return absl::OkStatus();
  return journal.Write({.generation = context->generation(),
                        .rank = context->rank(),
                        .world = context->world_size(),
                        .step = progress.step,
                        .loss = loss.item<double>()});
}

absl::StatusOr<bool> Session::Implementation::SavingIsDue() {
  if (checkpointer == nullptr) return false;
  const int64_t every = options.checkpoint_every;
  const bool asks = save_clock.StepIsDone();
  if (every > 0 && progress.step % every == 0) return true;
  if (!asks) return false;
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<int64_t> answers,
                          worker::GatherNumber(*context, save_clock.StepsToWait(MonotonicNow())));
  save_clock.TakeAnswer(answers[0]);
  return answers[0] == 0;
}

absl::Status Session::Implementation::Save(std::optional<double> score) {
  if (checkpointer == nullptr || (saved == progress && !score.has_value())) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(FinishHealing());
  DDPRUN_RETURN_IF_ERROR(CheckStep());  // nothing is resumed from a model that is lost
  SeedGenerators();
  DDPRUN_RETURN_IF_ERROR(checkpointer->SaveAsync(progress, score));
  saved = progress;
  save_clock.Restart(MonotonicNow());
  metrics->RestartClock();
  return absl::OkStatus();
}

absl::Status Session::Implementation::SaveAndWait() {
  DDPRUN_RETURN_IF_ERROR(Save());
  return checkpointer != nullptr ? checkpointer->Wait() : absl::OkStatus();
}

absl::Status Session::Implementation::SaveIfBest(double figure) {
  if (checkpointer == nullptr || evaluation.better == BetterFigure::kNeither) {
    return absl::OkStatus();
  }
  const double score = evaluation.better == BetterFigure::kHigher ? figure : -figure;
  DDPRUN_ASSIGN_OR_RETURN(const bool is_best, checkpointer->IsBest(score));
  return is_best ? Save(score) : absl::OkStatus();
}

Session::Session(SessionOptions options)
    : implementation_(std::make_unique<Implementation>(std::move(options))) {
  OrThrow(CheckTrainingOptions(implementation_->options));
  OrThrow(implementation_->Connect());
}

Session::~Session() {
  const Implementation& self = *implementation_;
  // The program ends the loop on its own: with all other ranks, or they wait in vain.
  const bool leaves =
      self.has_begun && !self.stopped && self.place != Implementation::Place::kEnded;
  if (!leaves || std::uncaught_exceptions() > 0) return;
  worker::NotifyDeparture(absl::StrCat("left the loop after step ", self.progress.step));
}

void Session::PrepareModule(std::shared_ptr<torch::nn::Module> module,
                            const OptimizerKind& optimizer, Dataset data,
                            std::vector<ParameterGroup> groups) {
  if (implementation_->model != nullptr) {
    OrThrow(Misuse(
        "Prepare() was called twice: a session trains one model; put several into one module"));
  }
  if (data.size < 1) {
    OrThrow(absl::InvalidArgumentError(absl::StrCat("Prepare() with a dataset of ", data.size,
                                                    " samples: was the file or folder empty?")));
  }
  if (data.load == nullptr) {
    OrThrow(absl::InvalidArgumentError(
        absl::StrCat("Prepare() with a dataset of ", data.size,
                     " samples without a function `load`: set it, or take TensorDataset()")));
  }
  implementation_->model = std::move(module);
  implementation_->data = std::move(data);
  OrThrow(implementation_->Prepare(optimizer, std::move(groups)));
}

void Session::EvaluateWith(Evaluation evaluation) {
  implementation_->evaluation = std::move(evaluation);
}

Session::BatchRange Session::Batches() { return BatchRange(*this); }

const Batch* Session::Advance() { return OrThrow(implementation_->Advance()); }

bool Session::BeginForward(DistributedDataParallel** ddp) {
  Implementation& self = *implementation_;
  if (self.place != Implementation::Place::kBatch || !at::GradMode::is_enabled()) return false;
  self.forward_called = true;
  *ddp = self.ddp.get();
  return self.broken.ok();
}

void Session::OnForwardError() {
  const absl::Status status = worker::StatusFromCurrentException();
  if (!implementation_->CanRecover(status)) throw;
  implementation_->Break(status);
}

void Session::Backward(const torch::Tensor& loss) {
  Implementation& self = *implementation_;
  OrThrow(self.CheckBackward(loss));
  self.place = Implementation::Place::kBackwardDone;
  self.autocast.reset();
  if (!self.broken.ok()) return;
  try {
    self.AddGradients(loss);
  } catch (...) {
    const absl::Status status = worker::StatusFromCurrentException();
    if (!self.CanRecover(status)) throw;
    self.Break(status);
  }
}

void Session::Implementation::AddGradients(const torch::Tensor& of_batch) {
  scaler->Scale(pass.weight == 1 ? of_batch : of_batch * pass.weight).backward();
  if (pass.share == 0) return;
  // Not read here: a GPU would have to be waited for in every pass.
  const torch::Tensor value = of_batch.detach().to(torch::kDouble) * pass.share;
  loss = loss.defined() ? loss + value : value;
}

bool Session::Step() { return OrThrow(implementation_->EndBatch()); }

void Session::Save() {
  if (implementation_->place == Implementation::Place::kUnprepared) {
    OrThrow(Misuse("Save() before Prepare(): there is nothing to save yet"));
  }
  if (implementation_->passes_left > 0) {
    OrThrow(Misuse("Save() in the middle of a step: call it after the Step() that returns true"));
  }
  Implementation& self = *implementation_;
  if (!self.broken.ok()) return;  // that step is going to be done again
  const absl::Status saved = worker::CatchExceptions([&] { return self.SaveAndWait(); });
  // Behind the loop nobody goes on.
  if (saved.ok() || self.place == Implementation::Place::kEnded || !self.CanRecover(saved)) {
    return OrThrow(saved);
  }
  self.Break(saved);
}

Context& Session::context() { return *implementation_->context; }
const TrainingOptions& Session::options() const { return implementation_->options; }
int64_t Session::step() const { return implementation_->progress.step; }
int64_t Session::epoch() const { return implementation_->progress.epoch; }
bool Session::stopped() const { return implementation_->stopped; }

torch::optim::Optimizer& Session::optimizer() {
  if (implementation_->optimizer == nullptr) OrThrow(Misuse("optimizer() before Prepare()"));
  return *implementation_->optimizer;
}

Metrics& Session::metrics() {
  if (implementation_->metrics == nullptr) OrThrow(Misuse("metrics() before Prepare()"));
  return *implementation_->metrics;
}

ExponentialMovingAverage* Session::average() { return implementation_->average.get(); }

torch::Tensor Session::OwnRows(int64_t rows) {
  const int64_t rank = context().rank();
  if (rank >= rows) return torch::empty({0}, torch::kLong);
  return torch::arange(rank, rows, static_cast<int64_t>(context().world_size()), torch::kLong);
}

double Session::SumOverRanks(const torch::Tensor& number) {
  torch::Tensor sum = number.detach().to(device(), torch::kDouble).reshape({1}).clone();
  OrThrow(context().AllReduceSum(sum));
  return sum.item<double>();
}

}  // namespace ddprun
