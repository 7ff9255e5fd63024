#include "ddprun/session.h"

#include <ATen/core/grad_mode.h>
#include <torch/utils.h>

#include <exception>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "worker/torch/context/process_context.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/errors/failure_notice.h"
#include "worker/torch/session/session_implementation.h"

// The loop of a session.
//
// CallOrder says which call of the program is allowed next. A step has one backward pass for each
// of its batches; `step.passes` has those that remain. Example: two passes (gradient accumulation),
// where only the last one averages gradients over the ranks:
//
//   call       passes   what runs
//   Advance    0 -> 1   BeginStep takes two, TakeBatch the first of them
//   Backward   1        gradients add up on this rank (NoSync)
//   Step       1        nothing; returns false
//   Advance    1 -> 0   TakeBatch
//   Backward   0        gradients are averaged
//   Step       0        EndStep; returns true
//
// The order in EndStep is what makes a lost peer cost one step:
//
//   FinishHealing, replicas->Commit   every rank has the state from which this step began
//   trained.FinishBackward            the last collective (without ZeRO)
//   trained.Step                      the only change of parameters (with one module)
//   course.StepIsDone, feed->Commit   the step is done, and its samples are consumed
//   Replicate, ReportStep, SaveIfDue  copies of the new state
//
// If a collective fails before trained.Step, nothing has changed but what StepStart has copied. The
// program isn't interrupted in the middle of its loop body: Break() notes the error in
// `step.broken`, the rest of the loop body runs without collectives, and Step() returns false. The
// next Advance() recovers in the next generation and begins the step again, without its other
// passes. If a collective fails after course.StepIsDone, the step counts: Step() returns true, and
// only the copies are missing.
//
// States of the program's own (Session::Add) change after Step(), in the loop body. Their step
// stays open (`step.is_open`), and is copied and saved in the next Advance().

namespace ddprun {

absl::StatusOr<const Batch*> Session::Implementation::Advance() {
  DDPRUN_RETURN_IF_ERROR(calls.CheckAdvance(course.step()));
  if (calls.place() == Place::kEnded) return nullptr;
  DDPRUN_RETURN_IF_ERROR(trained.CheckOptimizers(course.step()));
  if (step.passes.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(const bool more, BeginStepAnywhere());
    if (!more) {
      feed->End();
      calls.End();
      if (trained.zero() != nullptr) trained.zero()->EndTraining();
      return nullptr;
    }
  }
  TakeBatch();
  return &step.pass.batch;
}

absl::StatusOr<bool> Session::Implementation::BeginStepAnywhere() {
  while (true) {
    absl::Status ended = std::exchange(step.broken, absl::OkStatus());
    if (ended.ok()) {
      absl::StatusOr<bool> more = worker::CatchExceptions([this] { return BeginStep(); });
      if (more.ok() || !CanRecover(more.status())) return more;
      ended = more.status();
    }
    DDPRUN_RETURN_IF_ERROR(Recover(ended));
  }
}

// Evaluations come before the check for a stop, and a finished training before both, so that End()
// makes the last evaluation. An evaluation can finish the training (StopTraining).
absl::StatusOr<bool> Session::Implementation::BeginStep() {
  using Next = worker::TrainingCourse::Next;
  if (context->GenerationIsOver()) {
    return absl::UnavailableError(absl::StrCat(worker::kPeerErrorPrefix, "the generation is over"));
  }
  if (std::exchange(step.is_open, false)) {
    DDPRUN_RETURN_IF_ERROR(Replicate());
    DDPRUN_RETURN_IF_ERROR(SaveIfDue());
  }
  if (course.next() == Next::kEvaluation) {
    DDPRUN_RETURN_IF_ERROR(EndEpoch());
    course.EvaluationIsOver();
  }
  if (course.next() == Next::kEnd) {
    DDPRUN_RETURN_IF_ERROR(End());
    return false;
  }
  if (StopsHere()) {
    course.StopEarly();
    DDPRUN_RETURN_IF_ERROR(SaveAndWait());
    return false;
  }
  // Without replicas a killed worker's share comes back from a checkpoint, so one must be complete.
  const bool has_shares = trained.zero() != nullptr && context->CanRejoin() && !KeepsReplicas();
  const bool has_none = saver.HasNone(course.step());
  if (has_shares && has_none) DDPRUN_RETURN_IF_ERROR(SaveAndWait());
  DDPRUN_RETURN_IF_ERROR(OpenStep());
  return true;
}

// When a node is about to be taken away, all ranks stop at an agreed step to save the state.
// Without a checkpointer, if ranks on other nodes can go on, these keep the state: no rank stops.
bool Session::Implementation::StopsHere() {
  const bool others_live_on =
      context->CanRejoin() && context->local_world_size() < context->world_size();
  if (saver.checkpointer() != nullptr || !others_live_on) return context->StopAt(course.step());
  context->Mark(ProgressPhase::kTrain, course.step());
  return false;
}

absl::Status Session::Implementation::OpenStep() {
  step = {};
  step.began = MonotonicNow();
  SeedGenerators();
  absl::StatusOr<worker::SampleFeed::Step> next = feed->Next();
  step.metrics.data_time = MonotonicNow() - step.began;
  context->AddDataWait(step.metrics.data_time);
  DDPRUN_RETURN_IF_ERROR(next.status());
  if (healing != nullptr) healing->Weigh(*next);
  step.share = std::move(next->share);
  step.metrics.samples = static_cast<int64_t>(step.share.indices.size());
  DDPRUN_RETURN_IF_ERROR(SetRates());
  trained.ZeroGradients();
  // ZeRO goes back to what it has copies of.
  if (context->CanRejoin() && trained.zero() == nullptr) {
    step.start = std::make_unique<worker::StepStart>(trained, own, course);
  }
  step.passes = std::move(next->batch);
  return absl::OkStatus();
}

// A step's random numbers depend on the seed, the step and the rank alone. So a killed rank's
// generator needs no copy; a step that is done again, or after a resume, draws the same dropout;
// and an evaluation takes no number from a step. All passes of a step draw one after the other. The
// batches have generators of their own, seeded by the samples (sample_feed.cc). Seeded before a
// save as well, because a new rank hasn't drawn the numbers that the others have drawn since the
// step began. Takes a microsecond.
void Session::Implementation::SeedGenerators(bool of_evaluation) const {
  const auto seed = static_cast<uint64_t>(options.seed);
  worker::SeedGenerators(context->device(), of_evaluation ? ~seed : seed, course.step(),
                         context->rank());
}

absl::Status Session::Implementation::EndEpoch() {
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<worker::Losses::Mean> mean,
                          losses.MeanOfEpoch(*context));
  DDPRUN_RETURN_IF_ERROR(Evaluate());
  if (!Speaks()) return absl::OkStatus();
  const TrainingProgress& progress = course.progress();
  // Unknown if the job was resumed at the epoch's end.
  std::string loss_text = mean.has_value() ? absl::StrFormat("  loss %.4f", mean->loss) : "";
  const int64_t samples = progress.epoch_samples > 0 ? progress.epoch_samples : feed->data().size;
  if (mean.has_value() && mean->samples < samples) {
    absl::StrAppend(&loss_text, " (", mean->samples, " of ", samples, " samples)");
  }
  const std::string& figure = evaluations.last();
  worker::Print(absl::StrCat("epoch ", progress.epoch, "  step ", progress.step, loss_text,
                             figure.empty() ? "" : absl::StrCat("  ", figure)));
  return absl::OkStatus();
}

absl::Status Session::Implementation::End() {
  // Ranks that haven't stopped call other collectives than this one.
  if (!course.IsDoneAt(course.progress())) worker::NotifyStop(session_number, course.step());
  DDPRUN_RETURN_IF_ERROR(Save());
  if (!course.IsEvaluatedForGood()) DDPRUN_RETURN_IF_ERROR(Evaluate());
  DDPRUN_RETURN_IF_ERROR(saver.Wait());
  // Ranks that leave this barrier, for a later Session, know that this one's last state is saved.
  DDPRUN_RETURN_IF_ERROR(context->Barrier());
  if (!Speaks()) return absl::OkStatus();
  const std::string& figure = evaluations.last();
  worker::Print(absl::StrFormat("final%s (step %d, world %d, generation %d)",
                                figure.empty() ? "" : absl::StrCat(" ", figure), course.step(),
                                context->world_size(), context->generation()));
  return absl::OkStatus();
}

absl::Status Session::Implementation::EndStep() {
  if (healing == nullptr) course.TimeStep(MonotonicNow() - step.began);
  DDPRUN_RETURN_IF_ERROR(FinishHealing());
  if (replicas != nullptr) DDPRUN_RETURN_IF_ERROR(replicas->Commit());
  DDPRUN_ASSIGN_OR_RETURN(const bool buckets_changed, trained.FinishBackward(*context));
  if (context->CanRejoin()) {  // otherwise a broken group ends this process
    DDPRUN_RETURN_IF_ERROR(context->AwaitResults());
  }
  DDPRUN_RETURN_IF_ERROR(trained.Step(step.stepped_with_function, step.metrics, step.has_stepped));
  course.StepIsDone(context->generation());
  for (worker::SessionPart& part : trained.parts()) {
    if (buckets_changed) part.buckets->Keep();
  }
  DDPRUN_RETURN_IF_ERROR(feed->Commit(step.share));
  course.Consume(feed->place(), step.share.last_of_epoch);
  losses.Add(step.share.epoch, course.step(), step.metrics.loss, step.metrics.samples);
  if (healing != nullptr) {
    healing.reset();
    DDPRUN_RETURN_IF_ERROR(feed->Reform(context->rank(), context->world_size()));
  }
  if (own.empty()) DDPRUN_RETURN_IF_ERROR(Replicate());
  if (options.step_delay_ms > 0) absl::SleepFor(absl::Milliseconds(options.step_delay_ms));
  DDPRUN_RETURN_IF_ERROR(ReportStep());
  if (own.empty()) return SaveIfDue();
  step.is_open = true;
  return absl::OkStatus();
}

absl::Status Session::Implementation::Replicate() {
  if (replicas == nullptr || course.step() % options.replicate_every != 0) return absl::OkStatus();
  return replicas->Begin(course.progress());
}

absl::Status Session::Implementation::SaveIfDue() {
  DDPRUN_ASSIGN_OR_RETURN(const bool is_due, saver.IsDue(*context, course.step()));
  return is_due ? Save() : absl::OkStatus();
}

absl::Status Session::Implementation::FinishHealing() {
  if (healing == nullptr) return absl::OkStatus();
  absl::Status finished = healing->Finish();
  // The restored state has the rate of the step before.
  if (healing->has_taken()) DDPRUN_RETURN_IF_ERROR(SetRates());
  return finished;
}

absl::Status Session::Implementation::CheckStep() {
  // A step that was left out because of an overflow may have an infinite loss.
  if (!step.has_stepped) return absl::OkStatus();
  return losses.Check(*context, course.step(), step.metrics.loss, *trained.module());
}

absl::Status Session::Implementation::ReportStep() {
  step.metrics.step = course.step();
  if (step.has_stepped) losses.Note(*context, course.step(), step.metrics.loss);
  if (report.ReadsLoss(step.metrics)) DDPRUN_RETURN_IF_ERROR(CheckStep());
  return report.Step(*context, step.metrics);
}

absl::Status Session::Implementation::Evaluate() {
  if (evaluations.empty()) {
    course.EvaluationIsDone();
    return absl::OkStatus();
  }
  context->Mark(ProgressPhase::kEvaluation, course.step());
  SeedGenerators(/*of_evaluation=*/true);
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<double> score,
                          evaluations.Run(trained, *report.metrics(), course.step()));
  // Before the save below, because the evaluation has changed the program's states.
  course.EvaluationIsDone();
  if (!score.has_value()) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(const bool is_best, saver.IsBest(*score));
  return is_best ? Save(score) : absl::OkStatus();
}

absl::Status Session::Implementation::Save(std::optional<double> score) {
  if (!saver.Saves(course.progress(), score)) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(FinishHealing());
  DDPRUN_RETURN_IF_ERROR(CheckStep());  // a model with NaNs must not replace a good checkpoint
  SeedGenerators();
  DDPRUN_RETURN_IF_ERROR(saver.Save(course.progress(), score));
  report.metrics()->RestartClock();
  return absl::OkStatus();
}

absl::Status Session::Implementation::SaveAndWait() {
  DDPRUN_RETURN_IF_ERROR(Save());
  return saver.Wait();
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
  const bool leaves = self.report.has_begun() && self.job == nullptr && !self.course.is_stopped() &&
                      self.calls.place() != Implementation::Place::kEnded;
  if (!leaves || std::uncaught_exceptions() > 0) return;
  worker::NotifyDeparture(absl::StrCat("left the loop after step ", self.course.step()));
}

size_t Session::AddModule(std::string name, std::shared_ptr<torch::nn::Module> module,
                          const OptimizerKind& optimizer, std::vector<ParameterGroup> groups) {
  if (implementation_->calls.is_prepared()) {
    OrThrow(worker::Misuse(
        absl::StrCat("Add(\"", name, "\") after Prepare(): add all modules before it")));
  }
  worker::SessionPart part;
  part.name = std::move(name);
  part.module = std::move(module);
  part.kind = optimizer;
  part.groups = std::move(groups);
  OrThrow(implementation_->trained.Add(std::move(part)));
  return implementation_->trained.parts().size() - 1;
}

void Session::Add(const std::string& name, const OwnState& state) {
  if (implementation_->calls.is_prepared()) {
    OrThrow(worker::Misuse(
        absl::StrCat("Add(\"", name, "\") after Prepare(): it restores what is added")));
  }
  OrThrow(implementation_->own.Add(name, state));
  implementation_->course.KeepOwnStates();
}

void Session::CheckPrepare(const Dataset& data) const {
  if (implementation_->trained.module() != nullptr) {
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
  OrThrow(implementation_->Prepare(std::move(data)));
}

void Session::LearningRateWith(std::function<double(int64_t step)> rate) {
  implementation_->trained.LearnWith(std::move(rate));
}

void Session::StopTraining() { implementation_->course.marks().is_finished = true; }

void Session::EvaluateWith(Evaluation evaluation) {
  OrThrow(implementation_->evaluations.Add(std::move(evaluation)));
}

Session::BatchRange Session::Batches() { return BatchRange(*this); }

const Batch* Session::Advance() { return OrThrow(implementation_->Advance()); }

bool Session::BeginForward(size_t part, DistributedDataParallel** ddp) {
  Implementation& self = *implementation_;
  if (!self.calls.NoteForward(part, at::GradMode::is_enabled())) return false;
  *ddp = self.trained.parts()[part].ddp.get();
  return self.step.broken.ok();
}

void Session::OnForwardError() {
  const absl::Status status = worker::StatusFromCurrentException();
  if (!implementation_->CanRecover(status)) throw;
  implementation_->Break(status);
}

void Session::Backward(const torch::Tensor& loss) { OrThrow(implementation_->Backward(loss)); }

void Session::BackwardOf(size_t part, const torch::Tensor& loss) {
  OrThrow(implementation_->Backward(loss, part));
}

bool Session::Step() { return OrThrow(implementation_->EndBatch()); }

bool Session::StepOf(size_t part) { return OrThrow(implementation_->StepPart(part)); }

bool Session::Step(const std::function<torch::Tensor(const Batch& batch)>& loss) {
  return OrThrow(implementation_->StepWith(loss));
}

void Session::Save() {
  Implementation& self = *implementation_;
  OrThrow(self.calls.CheckSave(/*step_is_over=*/self.step.passes.empty()));
  if (!self.step.broken.ok()) return;  // the step will be done again
  const absl::Status saved = worker::CatchExceptions([&] { return self.SaveAndWait(); });
  // After the loop there is no step that could recover.
  if (saved.ok() || self.calls.place() == Implementation::Place::kEnded ||
      !self.CanRecover(saved)) {
    return OrThrow(saved);
  }
  self.Break(saved);
}

Context& Session::context() { return *implementation_->context; }
const TrainingOptions& Session::options() const { return implementation_->options; }
int64_t Session::step() const { return implementation_->course.step(); }
int64_t Session::epoch() const { return implementation_->course.progress().epoch; }
bool Session::stopped() const { return implementation_->course.is_stopped(); }

torch::optim::Optimizer& Session::optimizer() {
  torch::optim::Optimizer* optimizer = implementation_->trained.optimizer();
  if (optimizer == nullptr) OrThrow(worker::Misuse("optimizer() before Prepare()"));
  return *optimizer;
}

Metrics& Session::metrics() {
  Metrics* metrics = implementation_->report.metrics();
  if (metrics == nullptr) OrThrow(worker::Misuse("metrics() before Prepare()"));
  return *metrics;
}

ExponentialMovingAverage* Session::average() { return implementation_->trained.average(); }

torch::Tensor Session::OwnRows(int64_t rows) {
  const int64_t rank = context().rank();
  if (rank >= rows) return torch::empty({0}, torch::kLong);
  return torch::arange(rank, rows, static_cast<int64_t>(context().world_size()), torch::kLong);
}

std::shared_ptr<const void> Session::WholeParameters() {
  Implementation& self = *implementation_;
  if (!self.calls.is_prepared()) OrThrow(worker::Misuse("WholeParameters() before Prepare()"));
  OrThrow(self.step.broken);
  if (self.trained.zero() == nullptr) return nullptr;
  return std::make_shared<ZeroOptimizer::WholeParameters>(*self.trained.zero());
}

double Session::SumOverRanks(const torch::Tensor& number) {
  torch::Tensor sum = number.detach().to(device(), torch::kDouble).reshape({1}).clone();
  OrThrow(context().AllReduceSum(sum));
  return sum.item<double>();
}

}  // namespace ddprun
