#include "ddprun/session.h"

#include <ATen/core/grad_mode.h>
#include <torch/utils.h>

#include <exception>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/checkpoint_exchange.h"
#include "worker/torch/context/process_context.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/errors/failure_notice.h"
#include "worker/torch/session/session_implementation.h"

// The loop of a session.
//
// `place` says which call of the program is allowed next:
//
//   kUnprepared --Prepare--> kBetweenBatches --Advance--> kBatch --Backward--> kBackwardDone
//                                   ^                                               |
//                                   +--------------------- Step --------------------+
//
// Advance leads to kEnded when training is over. With several modules, StepOf leads from
// kBackwardDone to kBatch, for the next module's backward pass.
//
// A step has one backward pass for each of its batches, `passes_left` of them. Example: two passes
// (gradient accumulation), where only the last one averages gradients over the ranks:
//
//   call       passes_left   what runs
//   Advance    0 -> 2        BeginStep, TakeBatch
//   Backward   2             gradients add up on this rank (NoSync)
//   Step       2 -> 1        nothing; returns false
//   Advance    1             TakeBatch
//   Backward   1             gradients are averaged
//   Step       1 -> 0        EndStep; returns true
//
// The order in EndStep is what makes a lost peer cost one step:
//
//   FinishHealing, replicas->Commit   every rank has the state from which this step began
//   FinishBackward                    the last collective (without ZeRO)
//   StepOptimizer                     the only change of parameters (with one module)
//   ++progress.step, CommitShare      the step is done, and its samples are consumed
//   Replicate, ReportStep, SaveIfDue  copies of the new state
//
// If a collective fails before the optimizer's step, nothing has changed but what KeepStepStart has
// copied. The program isn't interrupted in the middle of its loop body: Break() notes the error in
// `broken`, the rest of the loop body runs without collectives, and Step() returns false. The next
// Advance() skips the step's other passes, recovers in the next generation and begins the step
// again. If a collective fails after ++progress.step, the step counts: Step() returns true, and
// only the copies are missing.
//
// States of the program's own (Session::Add) change after Step(), in the loop body. Their step
// stays open (step_is_open), and is copied and saved by CloseStep() in the next Advance().

namespace ddprun {
int64_t Session::Implementation::GlobalBatch() const {
  return constant_batch > 0 ? constant_batch
                            : BatchPerRank() * static_cast<int64_t>(context->world_size());
}

int64_t Session::Implementation::StepsPerEpoch() const {
  return (data.size + GlobalBatch() - 1) / GlobalBatch();
}

int64_t Session::Implementation::SchedulePlace() const {
  if (options.steps > 0) return progress.step;
  // Not the number of steps: after the number of workers changed, a step has another size.
  return progress.epoch * StepsPerEpoch() + progress.epoch_samples / GlobalBatch();
}

bool Session::Implementation::DoneAt(const TrainingProgress& there) const {
  return options.steps > 0 ? there.step >= options.steps : there.epoch >= options.epochs;
}

bool Session::Implementation::IsEvaluated(const TrainingProgress& there) const {
  const int64_t every = options.evaluate_every;
  if (every > 0) return there.step > 0 && there.step % every == 0;
  return there.epoch > 0 && there.epoch_samples == 0;
}

absl::StatusOr<const Batch*> Session::Implementation::Advance() {
  switch (place) {
    case Place::kUnprepared:
      return worker::Misuse(
          "Batches() before Prepare(): there is no model yet that learns from them");
    case Place::kBatch:
    case Place::kBackwardDone:
      return worker::Misuse(absl::StrCat(
          "a batch of step ", progress.step + 1, " got no ",
          place == Place::kBatch ? "Backward() and Step()" : "Step()",
          ": each batch needs both, accumulated ones too (Step() knows which is the step's last)"));
    case Place::kEnded:
      return nullptr;
    case Place::kBetweenBatches:
      DDPRUN_RETURN_IF_ERROR(CheckOptimizers());
      break;
  }
  if (passes_left == 0) {
    DDPRUN_ASSIGN_OR_RETURN(const bool more, BeginStepAnywhere());
    if (!more) {
      loader.reset();
      place = Place::kEnded;
      if (zero != nullptr) zero->EndTraining();
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

// Evaluations come before the check for a stop, and a finished training before both, so that End()
// makes the last evaluation. An evaluation can finish the training (StopTraining), hence the loop.
absl::StatusOr<bool> Session::Implementation::BeginStep() {
  if (context->GenerationIsOver()) {
    return absl::UnavailableError(absl::StrCat(worker::kPeerErrorPrefix, "the generation is over"));
  }
  if (std::exchange(step_is_open, false)) DDPRUN_RETURN_IF_ERROR(CloseStep());
  while (true) {
    if (Done()) {
      DDPRUN_RETURN_IF_ERROR(End());
      return false;
    }
    if (!evaluation_is_due) break;
    DDPRUN_RETURN_IF_ERROR(EndEpoch());
    evaluation_is_due = false;
  }
  // When a node is about to be taken away, all ranks stop at an agreed step to save the state.
  // Without a checkpointer, if ranks on other nodes can go on, these keep the state: no rank stops.
  const bool others_live_on =
      context->CanRejoin() && context->local_world_size() < context->world_size();
  const bool stops = checkpointer != nullptr || !others_live_on;
  if (stops && context->StopAt(progress.step)) {
    stopped = true;
    DDPRUN_RETURN_IF_ERROR(SaveAndWait());
    return false;
  }
  if (!stops) context->Mark(ProgressPhase::kTrain, progress.step);
  // Without replicas a killed worker's share comes back from a checkpoint, so one must be complete.
  const bool has_shares = zero != nullptr && context->CanRejoin() && !KeepsReplicas();
  const bool has_none = std::exchange(began_elsewhere, false) || progress.step == 0;
  if (has_shares && has_none) DDPRUN_RETURN_IF_ERROR(SaveAndWait());
  step_began = MonotonicNow();
  step_metrics = {};
  SeedGenerators();
  DDPRUN_RETURN_IF_ERROR(TakeShare());
  DDPRUN_RETURN_IF_ERROR(SetRates());
  ZeroGradients();
  loss = torch::Tensor();
  passes_left = static_cast<int64_t>(passes.size());
  KeepStepStart();
  return true;
}

// A step's random numbers depend on the seed, the step and the rank alone. So a killed rank's
// generator needs no copy; a step that is done again, or after a resume, draws the same dropout;
// and an evaluation takes no number from a step. All passes of a step draw one after the other. The
// batches have generators of their own, seeded by the samples (LoadPass). Seeded before a save as
// well, because a new rank hasn't drawn the numbers that the others have drawn since the step
// began. Takes a microsecond.
void Session::Implementation::SeedGenerators(bool of_evaluation) const {
  const auto seed = static_cast<uint64_t>(options.seed);
  worker::SeedGenerators(context->device(), of_evaluation ? ~seed : seed, progress.step,
                         context->rank());
}

absl::Status Session::Implementation::EndEpoch() {
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<worker::EpochLoss::Result> mean,
                          epoch_loss.Mean(*context));
  DDPRUN_ASSIGN_OR_RETURN(const std::string figure, Evaluate());
  if (!Speaks()) return absl::OkStatus();
  // Unknown if the job was resumed at the epoch's end.
  std::string loss_text = mean.has_value() ? absl::StrFormat("  loss %.4f", mean->loss) : "";
  const int64_t samples = progress.epoch_samples > 0 ? progress.epoch_samples : data.size;
  if (mean.has_value() && mean->samples < samples) {
    absl::StrAppend(&loss_text, " (", mean->samples, " of ", samples, " samples)");
  }
  worker::Print(absl::StrCat("epoch ", progress.epoch, "  step ", progress.step, loss_text,
                             figure.empty() ? "" : absl::StrCat("  ", figure)));
  return absl::OkStatus();
}

absl::Status Session::Implementation::End() {
  // Ranks that haven't stopped call other collectives than this one.
  if (!DoneAt(progress)) worker::NotifyStop(session_number, progress.step);
  DDPRUN_RETURN_IF_ERROR(Save());
  // An evaluation that has run at this step isn't repeated if the program has own states, which its
  // result may have changed (a scheduler that counts evaluations).
  std::string figure = last_evaluation;
  if (own.empty() || loop_marks.evaluated_step != progress.step) {
    DDPRUN_ASSIGN_OR_RETURN(figure, Evaluate());
  }
  if (checkpointer != nullptr) {
    DDPRUN_RETURN_IF_ERROR(AwaitSaved());
  }
  // Ranks that leave this barrier, for a later Session, know that this one's last state is saved.
  DDPRUN_RETURN_IF_ERROR(context->Barrier());
  if (!Speaks()) return absl::OkStatus();
  worker::Print(absl::StrFormat("final%s (step %d, world %d, generation %d)",
                                figure.empty() ? "" : absl::StrCat(" ", figure), progress.step,
                                context->world_size(), context->generation()));
  return absl::OkStatus();
}

absl::Status Session::Implementation::EndStep() {
  if (healing == nullptr) step_time = MonotonicNow() - step_began;
  DDPRUN_RETURN_IF_ERROR(FinishHealing());
  if (replicas != nullptr) DDPRUN_RETURN_IF_ERROR(replicas->Commit());
  DDPRUN_ASSIGN_OR_RETURN(const bool buckets_changed, FinishBackward());
  DDPRUN_RETURN_IF_ERROR(StepOptimizer());
  ++progress.step;
  state_generation = context->generation();
  for (worker::SessionPart& part : parts) {
    if (buckets_changed) part.buckets->Keep();
  }
  DDPRUN_RETURN_IF_ERROR(CommitShare());
  epoch_loss.Add(step_share.epoch, progress.step, loss, step_metrics.samples);
  DDPRUN_RETURN_IF_ERROR(EndHealing());
  if (own.empty()) DDPRUN_RETURN_IF_ERROR(Replicate());
  if (options.step_delay_ms > 0) absl::SleepFor(absl::Milliseconds(options.step_delay_ms));
  DDPRUN_RETURN_IF_ERROR(ReportStep());
  if (own.empty()) return SaveIfDue();
  step_is_open = true;
  return absl::OkStatus();
}

absl::Status Session::Implementation::CloseStep() {
  DDPRUN_RETURN_IF_ERROR(Replicate());
  return SaveIfDue();
}

absl::Status Session::Implementation::Replicate() {
  if (replicas == nullptr || progress.step % options.replicate_every != 0) return absl::OkStatus();
  return replicas->Begin(progress);
}

absl::Status Session::Implementation::SaveIfDue() {
  DDPRUN_ASSIGN_OR_RETURN(const bool is_due, SavingIsDue());
  return is_due ? Save() : absl::OkStatus();
}

// Reads the loss, for which a GPU must be waited for, only if it is written or now and then.
absl::Status Session::Implementation::ReportStep() {
  step_metrics.step = progress.step;
  step_metrics.loss = loss;
  NoteLoss();
  const bool writes = Speaks() && journal.is_open() && loss.defined();
  if (writes || progress.step % worker::kNotifyEvery == 0) DDPRUN_RETURN_IF_ERROR(CheckStep());
  DDPRUN_RETURN_IF_ERROR(metrics->Step(step_metrics));
  if (!writes) return absl::OkStatus();
  return journal.Write({.generation = context->generation(),
                        .rank = context->rank(),
                        .world = context->world_size(),
                        .step = progress.step,
                        .loss = loss.item<double>()});
}

// All ranks must answer alike. A count of steps does; of the clocks rank 0's counts, and the ranks
// gather its answer at the steps that SaveClock names, which are the same on all of them.
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
  DDPRUN_RETURN_IF_ERROR(CheckStep());  // a model with NaNs must not replace a good checkpoint
  SeedGenerators();
  if (options.checkpoint_errors == "warn") DDPRUN_RETURN_IF_ERROR(AwaitSaved());
  DDPRUN_RETURN_IF_ERROR(Tolerate(checkpointer->SaveAsync(progress, score)));
  saved = progress;
  save_clock.Restart(MonotonicNow());
  metrics->RestartClock();
  return absl::OkStatus();
}

absl::Status Session::Implementation::SaveAndWait() {
  DDPRUN_RETURN_IF_ERROR(Save());
  return checkpointer != nullptr ? AwaitSaved() : absl::OkStatus();
}

absl::Status Session::Implementation::AwaitSaved() { return Tolerate(checkpointer->Wait()); }

absl::Status Session::Implementation::Tolerate(absl::Status saved_or_not) const {
  const bool is_peers = absl::StartsWith(saved_or_not.message(), worker::kPeerErrorPrefix);
  if (saved_or_not.ok() || is_peers || options.checkpoint_errors != "warn") return saved_or_not;
  Log(LogLevel::kWarning, absl::StrCat("training goes on without a checkpoint that couldn't be "
                                       "written: ",
                                       saved_or_not.message()));
  return absl::OkStatus();
}

Session::Session(SessionOptions options)
    : implementation_(std::make_unique<Implementation>(std::move(options))) {
  OrThrow(CheckTrainingOptions(implementation_->options));
  OrThrow(implementation_->Connect());
}

Session::~Session() {
  Implementation& self = *implementation_;
  if (std::uncaught_exceptions() > 0) worker::ReleaseProcessContext();
  if (self.context != nullptr) self.EndSession();
  // The program has left the loop early. If the other ranks haven't, they would wait for this one.
  const bool leaves = self.has_begun && self.job == nullptr && !self.stopped &&
                      self.place != Implementation::Place::kEnded;
  if (!leaves || std::uncaught_exceptions() > 0) return;
  worker::NotifyDeparture(absl::StrCat("left the loop after step ", self.progress.step));
}

size_t Session::AddModule(std::string name, std::shared_ptr<torch::nn::Module> module,
                          const OptimizerKind& optimizer, std::vector<ParameterGroup> groups) {
  worker::SessionPart part;
  part.name = std::move(name);
  part.module = std::move(module);
  part.kind = optimizer;
  part.groups = std::move(groups);
  OrThrow(implementation_->Add(std::move(part)));
  return implementation_->parts.size() - 1;
}

void Session::Add(const std::string& name, const OwnState& state) {
  if (implementation_->place != Implementation::Place::kUnprepared) {
    OrThrow(worker::Misuse(
        absl::StrCat("Add(\"", name, "\") after Prepare(): it restores what is added")));
  }
  OrThrow(implementation_->own.Add(name, state));
}

void Session::CheckPrepare(const Dataset& data) const {
  if (implementation_->model != nullptr) {
    OrThrow(worker::Misuse(
        "Prepare() was called twice: a session trains once; Add() several modules before it"));
  }
  if (data.size < 1) {
    OrThrow(absl::InvalidArgumentError(absl::StrCat("Prepare() with a dataset of ", data.size,
                                                    " samples: was the file or folder empty?")));
  }
  if (data.load != nullptr) return;
  OrThrow(absl::InvalidArgumentError(
      absl::StrCat("Prepare() with a dataset of ", data.size,
                   " samples without a function `load`: set it, or take TensorDataset()")));
}

void Session::Prepare(Dataset data) {
  CheckPrepare(data);
  implementation_->data = std::move(data);
  OrThrow(implementation_->Prepare());
}

void Session::LearningRateWith(std::function<double(int64_t step)> rate) {
  implementation_->rate_of = std::move(rate);
}

void Session::StopTraining() { implementation_->loop_marks.is_finished = true; }

void Session::EvaluateWith(Evaluation evaluation) {
  OrThrow(implementation_->AddEvaluation(std::move(evaluation)));
}

Session::BatchRange Session::Batches() { return BatchRange(*this); }

const Batch* Session::Advance() { return OrThrow(implementation_->Advance()); }

bool Session::BeginForward(size_t part, DistributedDataParallel** ddp) {
  Implementation& self = *implementation_;
  const bool in_batch = self.place == Implementation::Place::kBatch ||
                        (self.place == Implementation::Place::kBackwardDone && self.Several());
  if (!in_batch) return false;
  const bool is_graded = at::GradMode::is_enabled();
  (is_graded ? self.parts[part].forward_called : self.parts[part].called_ungraded) = true;
  if (!is_graded) return false;
  *ddp = self.parts[part].ddp.get();
  return self.broken.ok();
}

void Session::OnForwardError() {
  const absl::Status status = worker::StatusFromCurrentException();
  if (!implementation_->CanRecover(status)) throw;
  implementation_->Break(status);
}

void Session::Backward(const torch::Tensor& loss) { OrThrow(implementation_->Backward(loss)); }

void Session::BackwardOf(size_t part, const torch::Tensor& loss) {
  OrThrow(implementation_->Backward(loss, &implementation_->parts[part]));
}

bool Session::Step() { return OrThrow(implementation_->EndBatch()); }

bool Session::StepOf(size_t part) {
  return OrThrow(implementation_->StepPart(implementation_->parts[part]));
}

bool Session::Step(const std::function<torch::Tensor(const Batch& batch)>& loss) {
  return OrThrow(implementation_->StepWith(loss));
}

void Session::Save() {
  if (implementation_->place == Implementation::Place::kUnprepared) {
    OrThrow(worker::Misuse("Save() before Prepare(): there is nothing to save yet"));
  }
  if (implementation_->passes_left > 0) {
    OrThrow(worker::Misuse(
        "Save() in the middle of a step: call it after the Step() that returns true"));
  }
  Implementation& self = *implementation_;
  if (!self.broken.ok()) return;  // the step will be done again
  const absl::Status saved = worker::CatchExceptions([&] { return self.SaveAndWait(); });
  // After the loop there is no step that could recover.
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
  if (implementation_->optimizer == nullptr)
    OrThrow(worker::Misuse("optimizer() before Prepare()"));
  return *implementation_->optimizer;
}

Metrics& Session::metrics() {
  if (implementation_->metrics == nullptr) OrThrow(worker::Misuse("metrics() before Prepare()"));
  return *implementation_->metrics;
}

ExponentialMovingAverage* Session::average() { return implementation_->average.get(); }

torch::Tensor Session::OwnRows(int64_t rows) {
  const int64_t rank = context().rank();
  if (rank >= rows) return torch::empty({0}, torch::kLong);
  return torch::arange(rank, rows, static_cast<int64_t>(context().world_size()), torch::kLong);
}

std::shared_ptr<const void> Session::WholeParameters() {
  Implementation& self = *implementation_;
  if (self.place == Implementation::Place::kUnprepared) {
    OrThrow(worker::Misuse("WholeParameters() before Prepare()"));
  }
  OrThrow(self.broken);
  if (self.zero == nullptr) return nullptr;
  return std::make_shared<ZeroOptimizer::WholeParameters>(*self.zero);
}

double Session::SumOverRanks(const torch::Tensor& number) {
  torch::Tensor sum = number.detach().to(device(), torch::kDouble).reshape({1}).clone();
  OrThrow(context().AllReduceSum(sum));
  return sum.item<double>();
}

}  // namespace ddprun
