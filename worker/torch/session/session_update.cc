// A batch of a session, from its samples to the optimizer's step.
#include <torch/types.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "ddprun/clip_grad_norm.h"
#include "worker/torch/context/context_implementation.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {
namespace {

absl::Status CheckIsLoss(const torch::Tensor& loss) {
  if (!loss.defined() || loss.numel() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("Backward() takes a loss of one number, this one is ",
                     loss.defined() ? absl::StrCat("[", absl::StrJoin(loss.sizes(), ", "), "]")
                                    : std::string("undefined"),
                     ": call mean()"));
  }
  if (!loss.requires_grad()) {
    return absl::InvalidArgumentError(
        "the loss depends on no parameter that is trained: was it computed from a detach()ed "
        "tensor or under a torch::NoGradGuard, or are all parameters frozen?");
  }
  return absl::OkStatus();
}

}  // namespace

void Session::Implementation::TakeBatch() {
  step.pass = std::move(step.passes.back());
  step.passes.pop_back();
  Batch& batch = step.pass.batch;
  batch.inputs = batch.inputs.to(context->device());
  if (batch.targets.defined()) batch.targets = batch.targets.to(context->device());
  for (torch::Tensor& tensor : batch.more) tensor = tensor.to(context->device());
  OpenPass(/*is_last=*/step.passes.empty());
}

void Session::Implementation::OpenPass(bool is_last) {
  trained.OpenPass(is_last);
  calls.OpenBatch();
  // A rank whose samples of this step are over has a loss of weight 0, but running statistics have
  // no weight.
  context->implementation().counts_no_samples = step.pass.share == 0;
}

absl::Status Session::Implementation::Backward(const torch::Tensor& loss,
                                               std::optional<size_t> of) {
  DDPRUN_RETURN_IF_ERROR(calls.CheckBackward(of));
  DDPRUN_RETURN_IF_ERROR(CheckIsLoss(loss));
  calls.NoteBackward(of);
  trained.EndForward();
  if (!step.broken.ok()) return absl::OkStatus();
  try {
    const worker::SessionPart* part = of.has_value() ? &trained.parts()[*of] : nullptr;
    DDPRUN_RETURN_IF_ERROR(trained.AddGradients(loss, part, step.pass.weight));
    step.AddLoss(loss);
  } catch (...) {
    const absl::Status status = worker::StatusFromCurrentException();
    if (!CanRecover(status)) throw;
    Break(status);
  }
  if (trained.HasSeveral()) trained.BeginForward();  // for the next module's
  return absl::OkStatus();
}

absl::StatusOr<bool> Session::Implementation::StepPart(size_t part) {
  if (!trained.HasSeveral()) return EndBatch();
  worker::SessionPart& one = trained.parts()[part];
  DDPRUN_RETURN_IF_ERROR(calls.CheckStepOf(part, one.name));
  calls.NoteStepOf(part);
  if (!step.passes.empty() || !step.broken.ok()) return false;
  DDPRUN_RETURN_IF_ERROR(trained.CheckOptimizers(course.step()));
  const absl::StatusOr<bool> taken = worker::CatchExceptions([&]() -> absl::StatusOr<bool> {
    if (context->CanRejoin()) DDPRUN_RETURN_IF_ERROR(context->AwaitResults());
    DDPRUN_RETURN_IF_ERROR(worker::TrainedModel::AverageEarlier(*context, one));
    DDPRUN_RETURN_IF_ERROR(KeepBeforeUpdate());
    return trained.StepPart(one, step.metrics);
  });
  if (!taken.ok() && CanRecover(taken.status())) {
    Break(taken.status());
    return false;
  }
  DDPRUN_RETURN_IF_ERROR(taken.status());
  one.ddp->ZeroGrad();
  step.has_stepped = step.has_stepped || *taken;
  return *taken;
}

absl::StatusOr<bool> Session::Implementation::EndBatch() {
  DDPRUN_RETURN_IF_ERROR(calls.CheckStep());
  DDPRUN_RETURN_IF_ERROR(trained.CheckOptimizers(course.step()));
  return CloseBatch();
}

absl::StatusOr<bool> Session::Implementation::CloseBatch() {
  trained.EndPass();
  calls.CloseBatch();
  context->implementation().counts_no_samples = false;
  if (!step.broken.ok()) step.passes.clear();  // they don't count: the step is done again
  if (!step.passes.empty() || !step.broken.ok()) return false;
  const int64_t before = course.step();
  const absl::Status ended = EndStep();
  if (!ended.ok() && !CanRecover(ended)) return ended;
  if (!ended.ok()) Break(ended);
  return step.has_stepped && course.step() > before;  // ZeRO's optimizer can break, too
}

absl::Status Session::Implementation::KeepBeforeUpdate() {
  return step.start != nullptr ? step.start->KeepBeforeUpdate(StateOfAll()) : absl::OkStatus();
}

// Calls the function for each pass of the step; gradients add up as in the usual step. Returns to
// the optimizer the loss of all samples of the step, the same number on all ranks, because its line
// search must decide alike on all of them.
torch::Tensor Session::Implementation::LossOfStep(const LossFunction& function,
                                                  const worker::SampleFeed::Passes& all) {
  trained.ZeroGradients();
  step.metrics.loss = torch::Tensor();
  torch::Tensor sum =
      torch::zeros({1}, torch::TensorOptions(torch::kDouble).device(context->device()));
  for (const worker::Pass& one : all) {
    step.pass = one;
    OpenPass(/*is_last=*/&one == &all.back());
    const torch::Tensor value = function(step.pass.batch);
    OrThrow(Backward(value));
    OrThrow(step.broken);
    sum += value.detach().to(torch::kDouble) * step.pass.weight;
  }
  OrThrow(context->AllReduceSum(sum));
  if (options.max_grad_norm > 0) {
    step.metrics.gradient_norm = OrThrow(ClipGradNorm(*trained.module(), options.max_grad_norm));
  }
  return (sum / static_cast<double>(context->world_size())).reshape({});
}

absl::StatusOr<bool> Session::Implementation::StepWith(const LossFunction& function) {
  DDPRUN_RETURN_IF_ERROR(calls.CheckStepWithFunction());
  if (!trained.TakesFunction()) {
    return absl::InvalidArgumentError(
        "Step(function) is for a session with one module, an optimizer of OptimizerOf, and no "
        "--mixed_precision fp16: call Backward() and Step() instead");
  }
  DDPRUN_RETURN_IF_ERROR(trained.CheckOptimizers(course.step()));
  worker::SampleFeed::Passes all = {step.pass};
  while (!step.passes.empty()) {
    TakeBatch();
    all.push_back(step.pass);
  }
  worker::SessionPart& part = trained.parts().front();
  torch::Tensor first;  // the loss that the step began with
  try {
    OrThrow(KeepBeforeUpdate());
    OrThrow(step.broken);
    part.optimizer->step([&] {
      torch::Tensor value = LossOfStep(function, all);
      if (!first.defined()) first = step.metrics.loss;
      return value;
    });
    step.stepped_with_function = step.has_stepped = true;
    step.metrics.loss = first;
  } catch (...) {
    const absl::Status status = worker::StatusFromCurrentException();
    if (!CanRecover(status)) throw;
    Break(status);
  }
  part.steps.Note(*part.optimizer);
  return CloseBatch();
}

}  // namespace ddprun
