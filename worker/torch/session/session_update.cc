// A batch of a session, from its samples to the optimizer's step.
//
// With several modules (Session::Add) each has a backward pass and a step of its own in a batch,
// and parameters of the first change before the last one's gradients exist. If a peer is lost in
// between, all ranks do the step again. So what optimizers change is copied before the first of
// them steps, and restored (ReturnToStepStart). The same holds for an optimizer that makes several
// passes in one step (LBFGS). The usual step, in which one module's parameters change after the
// last collective, copies nothing.
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "ddprun/clip_grad_norm.h"
#include "ddprun/parameters.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/session/session_implementation.h"

namespace ddprun {
namespace {

// A step of the optimizer with gradients that are there already. An optimizer such as LBFGS can't
// take one: LibTorch's say that they want a closure, and other classes call an empty function.
absl::StatusOr<bool> StepWithoutLoss(GradScaler& scaler, const worker::SessionPart& part) {
  absl::StatusOr<bool> taken = scaler.Step(*part.optimizer);
  const auto* any = std::get_if<AnyOptimizer>(&part.kind);
  if (taken.ok() || any == nullptr) return taken;
  const bool wants_loss = absl::StrContains(taken.status().message(), "closure") ||
                          absl::StrContains(taken.status().message(), "bad_function_call");
  if (!wants_loss) return taken;
  return worker::Misuse(absl::StrCat(
      any->name,
      " asks for the loss during its step: in place of Backward() and Step() call "
      "session.Step([&](const Batch& batch) { return loss; }) with the loss of `batch`"));
}

}  // namespace

void Session::Implementation::TakeBatch() {
  pass = std::move(passes.back());
  passes.pop_back();
  Batch& batch = pass.batch;
  batch.inputs = batch.inputs.to(context->device());
  if (batch.targets.defined()) batch.targets = batch.targets.to(context->device());
  for (torch::Tensor& tensor : batch.more) tensor = tensor.to(context->device());
  OpenPass(/*is_last=*/passes_left == 1);
}

void Session::Implementation::OpenPass(bool is_last) {
  for (worker::SessionPart& part : parts) {
    part.forward_called = part.called_ungraded = false;
    part.no_sync.reset();
    if (is_last || part.ddp == nullptr) continue;
    part.no_sync = std::make_unique<DistributedDataParallel::NoSync>(*part.ddp);
  }
  // In stage 3 there may be no memory for all gradients of a rank.
  zero_no_sync.reset();
  if (!is_last && options.zero_stage == "2") zero_no_sync.emplace(*zero);
  autocast.emplace(context->device().type(), precision);
  place = Place::kBatch;
}

absl::Status Session::Implementation::CheckBackward(const torch::Tensor& of_batch,
                                                    const worker::SessionPart* of) const {
  bool twice = false;
  bool called = false;
  bool called_ungraded = false;
  for (const worker::SessionPart& part : parts) {
    if (of != nullptr && of != &part) continue;
    called_ungraded = called_ungraded || part.called_ungraded;
    twice = twice || part.backward_done;
    called = called || part.forward_called;
  }
  if (place == Place::kBackwardDone && twice) {
    return worker::Misuse(
        "Backward() was called twice for one batch: gradients are averaged in the first; add the "
        "losses up and call it once");
  }
  if (place != Place::kBatch && place != Place::kBackwardDone) {
    return worker::Misuse(
        "Backward() without a batch: it belongs inside `for (const Batch& batch : "
        "session.Batches())`");
  }
  if (!called && called_ungraded) {
    return worker::Misuse(
        "the session's model was called without gradients: end the scope of the "
        "torch::NoGradGuard (or InferenceMode) before the call whose loss is learned from");
  }
  if (!called) {
    return worker::Misuse(
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
        "tensor or under a torch::NoGradGuard, or are all parameters frozen?");
  }
  return absl::OkStatus();
}

absl::Status Session::Implementation::Backward(const torch::Tensor& of_batch,
                                               worker::SessionPart* of) {
  DDPRUN_RETURN_IF_ERROR(CheckBackward(of_batch, of));
  place = Place::kBackwardDone;
  for (worker::SessionPart& part : parts) {
    if (of == nullptr || of == &part) part.backward_done = part.has_gradients = true;
  }
  autocast.reset();
  if (!broken.ok()) return absl::OkStatus();
  try {
    DDPRUN_RETURN_IF_ERROR(AddGradients(of_batch, of));
  } catch (...) {
    const absl::Status status = worker::StatusFromCurrentException();
    if (!CanRecover(status)) throw;
    Break(status);
  }
  if (Several()) autocast.emplace(context->device().type(), precision);  // for the next module's
  return absl::OkStatus();
}

absl::Status Session::Implementation::AddGradients(const torch::Tensor& of_batch,
                                                   const worker::SessionPart* of) {
  for (worker::SessionPart& part : parts) part.watch->TakeArrived();  // of passes of the program's
  const torch::Tensor scaled = scaler->Scale(pass.weight == 1 ? of_batch : of_batch * pass.weight);
  if (of == nullptr || !Several()) {
    scaled.backward();
  } else {
    // Only this module's parameters: a generator's loss, which goes through the critic, adds
    // nothing to the critic's gradients.
    std::vector<torch::Tensor> own_parameters;
    for (const torch::Tensor& parameter : Parameters(*of->module)) {
      if (parameter.requires_grad()) own_parameters.push_back(parameter);
    }
    torch::autograd::backward({scaled}, {}, std::nullopt, /*create_graph=*/false, own_parameters);
  }
  bool arrived = false;
  for (worker::SessionPart& part : parts) {
    if (of == nullptr || of == &part) arrived = part.watch->TakeArrived() || arrived;
  }
  // With find_unused_parameters, too: this rank would begin no average, and the others would wait.
  if (!arrived) {
    return worker::Misuse(
        "Backward() of a loss that the session's model had no part in: none of its parameters got "
        "a gradient; make the loss from what the model returned in this batch, and call "
        "torch::load, which takes parameters out of the session, before Prepare()");
  }
  if (pass.share == 0) return absl::OkStatus();
  // Not read here, because every pass would have to wait for a GPU.
  const torch::Tensor value = of_batch.detach().to(torch::kDouble) * pass.share;
  loss = loss.defined() ? loss + value : value;
  return absl::OkStatus();
}

absl::Status Session::Implementation::CheckOptimizers() const {
  for (const worker::SessionPart& part : parts) {
    DDPRUN_RETURN_IF_ERROR(part.steps.Check(*part.optimizer, progress.step));
  }
  return absl::OkStatus();
}

void Session::Implementation::ZeroGradients() {
  if (zero != nullptr) return zero->ZeroGrad();
  for (worker::SessionPart& part : parts) part.ddp->ZeroGrad();
}

absl::StatusOr<bool> Session::Implementation::StepPart(worker::SessionPart& part) {
  if (!Several()) return EndBatch();
  if (place != Place::kBackwardDone || !part.backward_done) {
    return worker::Misuse(
        absl::StrCat("Step() of '", part.name, "' before Backward() of its loss"));
  }
  part.backward_done = false;
  const bool others_are = std::any_of(parts.begin(), parts.end(),
                                      [](const auto& other) { return other.backward_done; });
  place = others_are ? Place::kBackwardDone : Place::kBatch;
  has_stepped_part = true;
  if (passes_left > 1 || !broken.ok()) return false;
  DDPRUN_RETURN_IF_ERROR(CheckOptimizers());
  const absl::StatusOr<bool> taken = worker::CatchExceptions([&]() -> absl::StatusOr<bool> {
    if (context->CanRejoin()) DDPRUN_RETURN_IF_ERROR(context->AwaitResults());
    DDPRUN_RETURN_IF_ERROR(KeepBeforeUpdate());
    return Update(part);
  });
  if (!taken.ok() && CanRecover(taken.status())) {
    Break(taken.status());
    return false;
  }
  DDPRUN_RETURN_IF_ERROR(taken.status());
  part.ddp->ZeroGrad();
  updated_early = updated_early || *taken;
  return *taken;
}

absl::StatusOr<bool> Session::Implementation::EndBatch() {
  if (place == Place::kBatch && !has_stepped_part) {
    return worker::Misuse("Step() before Backward(): this batch has no gradients yet");
  }
  if (place != Place::kBackwardDone && place != Place::kBatch) {
    return worker::Misuse(
        "Step() without a batch: it comes once for each, after Backward(); was it called twice?");
  }
  DDPRUN_RETURN_IF_ERROR(CheckOptimizers());
  return CloseBatch();
}

absl::StatusOr<bool> Session::Implementation::CloseBatch() {
  for (worker::SessionPart& part : parts) {
    part.no_sync.reset();
    part.backward_done = false;
  }
  zero_no_sync.reset();
  autocast.reset();
  has_stepped_part = false;
  place = Place::kBetweenBatches;
  if (!broken.ok()) passes_left = 1;  // the step is done again: its other passes don't count
  if (--passes_left > 0 || !broken.ok()) return false;
  const int64_t before = progress.step;
  const absl::Status ended = EndStep();
  if (!ended.ok() && !CanRecover(ended)) return ended;
  if (!ended.ok()) Break(ended);
  return stepped && progress.step > before;  // ZeRO's optimizer can break, too
}

absl::StatusOr<bool> Session::Implementation::Update(worker::SessionPart& part) {
  if (options.max_grad_norm > 0) {
    DDPRUN_ASSIGN_OR_RETURN(const double norm, scaler->ClipGradNorm(*part.optimizer, *part.module,
                                                                    options.max_grad_norm));
    // Not finite: gradients overflowed in fp16, and the scaler leaves this step out.
    if (std::isfinite(norm)) {
      step_metrics.gradient_norm = std::hypot(step_metrics.gradient_norm.value_or(0), norm);
    }
  }
  const absl::StatusOr<bool> taken = StepWithoutLoss(*scaler, part);
  part.steps.Note(*part.optimizer);
  part.has_gradients = false;
  return taken;
}

absl::StatusOr<bool> Session::Implementation::FinishBackward() {
  bool changed = false;
  for (worker::SessionPart& part : parts) {
    if (part.ddp == nullptr) continue;
    DDPRUN_ASSIGN_OR_RETURN(const bool of_part, part.ddp->FinishStep());
    changed = changed || of_part;
  }
  return changed;
}

absl::Status Session::Implementation::StepOptimizer() {
  if (context->CanRejoin()) {  // otherwise a broken group ends this process
    DDPRUN_RETURN_IF_ERROR(context->AwaitResults());
  }
  stepped = std::exchange(updated_early, false);
  const bool is_done = std::exchange(stepped_with_function, false);
  for (worker::SessionPart& part : parts) {
    if (is_done || !part.has_gradients) continue;
    DDPRUN_ASSIGN_OR_RETURN(const bool taken, Update(part));
    stepped = stepped || taken;
  }
  if (stepped && average != nullptr) average->Update();
  return is_done ? absl::OkStatus() : scaler->Update();
}

absl::Status Session::Implementation::KeepBeforeUpdate() {
  if (!step_start.has_value() || step_start->before_update.has_value()) return absl::OkStatus();
  const torch::NoGradGuard no_grad;
  DDPRUN_ASSIGN_OR_RETURN(worker::CheckpointTensors tensors, worker::LastingTensors(StateOfAll()));
  worker::AddTensors("", worker::CollectTensors(*model, progress), tensors);
  for (auto& [name, tensor] : tensors) tensor = tensor.clone();
  step_start->before_update = std::move(tensors);
  return absl::OkStatus();
}

// Calls the function for each pass of the step; gradients add up as in the usual step. Returns to
// the optimizer the loss of all samples of the step, the same number on all ranks, because its line
// search must decide alike on all of them.
torch::Tensor Session::Implementation::LossOfStep(const LossFunction& function,
                                                  const std::vector<Pass>& all) {
  ZeroGradients();
  loss = torch::Tensor();
  torch::Tensor sum =
      torch::zeros({1}, torch::TensorOptions(torch::kDouble).device(context->device()));
  for (const Pass& one : all) {
    pass = one;
    for (worker::SessionPart& part : parts) part.backward_done = false;
    OpenPass(/*is_last=*/&one == &all.back());
    const torch::Tensor value = function(pass.batch);
    OrThrow(Backward(value));
    OrThrow(broken);
    sum += value.detach().to(torch::kDouble) * pass.weight;
  }
  OrThrow(context->AllReduceSum(sum));
  if (options.max_grad_norm > 0) {
    step_metrics.gradient_norm = OrThrow(ClipGradNorm(*model, options.max_grad_norm));
  }
  return (sum / static_cast<double>(context->world_size())).reshape({});
}

absl::StatusOr<bool> Session::Implementation::StepWith(const LossFunction& function) {
  if (place != Place::kBatch) {
    return worker::Misuse(
        "Step(function) without a batch, or after Backward(), which it calls itself");
  }
  if (Several() || !IsAny(parts.front()) || precision == MixedPrecision::kFloat16) {
    return absl::InvalidArgumentError(
        "Step(function) is for a session with one module, an optimizer of OptimizerOf, and no "
        "--mixed_precision fp16: call Backward() and Step() instead");
  }
  DDPRUN_RETURN_IF_ERROR(CheckOptimizers());
  std::vector<Pass> all = {pass};
  for (; passes_left > 1; --passes_left) {
    TakeBatch();
    all.push_back(pass);
  }
  torch::Tensor first;  // what the step began with
  torch::optim::Optimizer& one = *parts.front().optimizer;
  try {
    OrThrow(KeepBeforeUpdate());
    OrThrow(broken);
    one.step([&] {
      torch::Tensor value = LossOfStep(function, all);
      if (!first.defined()) first = loss;
      return value;
    });
    stepped_with_function = updated_early = true;
    loss = first;
  } catch (...) {
    const absl::Status status = worker::StatusFromCurrentException();
    if (!CanRecover(status)) throw;
    Break(status);
  }
  parts.front().steps.Note(one);
  return CloseBatch();
}

}  // namespace ddprun
