// A step of a TrainedModel: its backward passes, and the steps of its optimizers.
#include <torch/csrc/autograd/autograd.h>
#include <torch/utils.h>

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "ddprun/parameters.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/session/call_order.h"
#include "worker/torch/session/trained_model.h"

namespace ddprun::worker {
namespace {

// A step of the optimizer with gradients that are there already. An optimizer such as LBFGS can't
// take one: LibTorch's say that they want a closure, and other classes call an empty function.
absl::StatusOr<bool> StepWithoutLoss(GradScaler& scaler, const SessionPart& part) {
  absl::StatusOr<bool> taken = scaler.Step(*part.optimizer);
  const auto* any = std::get_if<AnyOptimizer>(&part.kind);
  if (taken.ok() || any == nullptr) return taken;
  const bool wants_loss = absl::StrContains(taken.status().message(), "closure") ||
                          absl::StrContains(taken.status().message(), "bad_function_call");
  if (!wants_loss) return taken;
  return Misuse(absl::StrCat(
      any->name,
      " asks for the loss during its step: in place of Backward() and Step() call "
      "session.Step([&](const Batch& batch) { return loss; }) with the loss of `batch`"));
}

// Averages gradients over the ranks. A parameter that has one on some ranks gets it on all of them;
// one without any keeps none, so that its optimizer passes it over. Throws as LibTorch does.
absl::Status AverageGradients(Context& context, std::vector<torch::Tensor> parameters) {
  const torch::NoGradGuard no_grad;
  torch::Tensor counts = torch::zeros({static_cast<int64_t>(parameters.size())}, torch::kLong);
  auto* count = counts.mutable_data_ptr<int64_t>();
  for (const torch::Tensor& parameter : parameters) *count++ = parameter.grad().defined() ? 1 : 0;
  counts = counts.to(context.device());
  DDPRUN_RETURN_IF_ERROR(context.AllReduceSum(counts));
  counts = counts.cpu();
  const auto* of_all = counts.const_data_ptr<int64_t>();
  std::map<torch::ScalarType, std::vector<torch::Tensor>> by_type;
  for (torch::Tensor& parameter : parameters) {
    if (*of_all++ == 0) continue;
    torch::Tensor& gradient = parameter.mutable_grad();
    if (!gradient.defined()) gradient = torch::zeros_like(parameter);
    by_type[gradient.scalar_type()].push_back(gradient);
  }
  for (auto& [type, gradients] : by_type) {
    std::vector<torch::Tensor> flat;
    for (const torch::Tensor& gradient : gradients) flat.push_back(gradient.reshape({-1}));
    // Divided before the sum, as in c10d::Reducer, so that sums of float16 don't overflow.
    torch::Tensor mean = torch::cat(flat).div_(static_cast<int64_t>(context.world_size()));
    DDPRUN_RETURN_IF_ERROR(context.AllReduceSum(mean));
    int64_t begin = 0;
    for (torch::Tensor& gradient : gradients) {
      gradient.copy_(mean.narrow(0, begin, gradient.numel()).view(gradient.sizes()));
      begin += gradient.numel();
    }
  }
  return absl::OkStatus();
}

}  // namespace

bool TrainedModel::MayStepEarly() const {
  return HasSeveral() || std::holds_alternative<AnyOptimizer>(parts_.front().kind);
}

bool TrainedModel::TakesFunction() const {
  return MayStepEarly() && !HasSeveral() && precision_ != MixedPrecision::kFloat16;
}

void TrainedModel::ZeroGradients() {
  for (SessionPart& part : parts_) part.has_gradients = part.is_averaged = false;
  if (zero_ != nullptr) zero_->ZeroGrad();
  for (SessionPart& part : parts_) {
    if (part.ddp != nullptr) part.ddp->ZeroGrad();
  }
}

absl::Status TrainedModel::CheckOptimizers(int64_t step) const {
  for (const SessionPart& part : parts_) {
    DDPRUN_RETURN_IF_ERROR(part.steps.Check(*part.optimizer, step));
    DDPRUN_RETURN_IF_ERROR(part.trained->Check());
  }
  return absl::OkStatus();
}

void TrainedModel::OpenPass(bool is_last) {
  EndPass();
  averages_ = is_last;
  if (!is_last) {
    for (SessionPart& part : parts_) {
      if (part.ddp == nullptr) continue;
      part.no_sync = std::make_unique<DistributedDataParallel::NoSync>(*part.ddp);
    }
    // In stage 3 there may be no memory for all gradients of a rank.
    if (options_.zero_stage == "2") zero_no_sync_.emplace(*zero_);
  }
  BeginForward();
}

void TrainedModel::EndPass() {
  for (SessionPart& part : parts_) part.no_sync.reset();
  zero_no_sync_.reset();
  EndForward();
}

absl::Status TrainedModel::UpdateScale() {
  for (SessionPart& part : parts_) part.has_stepped = false;
  return scaler_->Update();
}

// A scaler takes one step of an optimizer between two updates, which may change the scale. As a
// critic that learns several times a step needs more, it is updated between them, while no
// gradients of the old scale are left.
absl::Status TrainedModel::RenewScale(const SessionPart& part) {
  if (!part.has_stepped || precision_ != MixedPrecision::kFloat16) return absl::OkStatus();
  for (const SessionPart& other : parts_) {
    if (!other.has_gradients) continue;
    return Misuse(absl::StrCat("Backward() of '", part.name, "' after its Step(), while '",
                               other.name,
                               "' has gradients: --mixed_precision fp16 may change the "
                               "scale there; call Step() of '",
                               other.name, "' before"));
  }
  return UpdateScale();
}

absl::Status TrainedModel::AddGradients(const torch::Tensor& loss, const SessionPart* of,
                                        double weight) {
  for (SessionPart& part : parts_) {
    part.watch->TakeArrived();  // of passes of the program's
    if (of == nullptr || of == &part) DDPRUN_RETURN_IF_ERROR(RenewScale(part));
  }
  const torch::Tensor scaled = scaler_->Scale(weight == 1 ? loss : loss * weight);
  if (of == nullptr || !HasSeveral()) {
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
  for (SessionPart& part : parts_) {
    if (of != nullptr && of != &part) continue;
    if (!part.watch->TakeArrived()) continue;
    arrived = part.has_gradients = true;
    // The part's reducer has also averaged what earlier passes had added up.
    part.is_averaged = averages_;
  }
  if (arrived) return absl::OkStatus();
  // With find_unused_parameters, too: this rank would begin no average, and the others would wait.
  return Misuse(
      "Backward() of a loss that the session's model had no part in: none of its parameters got "
      "a gradient; make the loss from what the model returned in this batch, and call "
      "torch::load, which takes parameters out of the session, before Prepare()");
}

// A reducer averages in backward passes alone. With several modules, the step's last pass may be
// one of another module:
//
//   pass   Backward of       critic's gradients
//   1      critic            added up on this rank
//   2      generator         as before; without this function the critic would step with them, on
//                            each rank with others
absl::Status TrainedModel::AverageEarlier(Context& context, SessionPart& part) {
  if (!part.has_gradients || part.is_averaged || part.ddp == nullptr) return absl::OkStatus();
  DDPRUN_RETURN_IF_ERROR(
      CatchExceptions([&] { return AverageGradients(context, part.ddp->parameters()); }));
  part.is_averaged = true;
  return absl::OkStatus();
}

absl::StatusOr<bool> TrainedModel::FinishBackward(Context& context) {
  bool changed = false;
  for (SessionPart& part : parts_) {
    if (part.ddp == nullptr) continue;
    DDPRUN_RETURN_IF_ERROR(AverageEarlier(context, part));
    DDPRUN_ASSIGN_OR_RETURN(const bool of_part, part.ddp->FinishStep());
    changed = changed || of_part;
  }
  return changed;
}

absl::StatusOr<bool> TrainedModel::StepPart(SessionPart& part, StepMetrics& metrics) {
  if (options_.max_grad_norm > 0) {
    DDPRUN_ASSIGN_OR_RETURN(const double norm, scaler_->ClipGradNorm(*part.optimizer, *part.module,
                                                                     options_.max_grad_norm));
    // Not finite: gradients overflowed in fp16, and the scaler leaves this step out.
    if (std::isfinite(norm)) {
      metrics.gradient_norm = std::hypot(metrics.gradient_norm.value_or(0), norm);
    }
  }
  absl::StatusOr<bool> taken = StepWithoutLoss(*scaler_, part);
  part.steps.Note(*part.optimizer);
  part.has_gradients = part.is_averaged = false;
  part.has_stepped = true;
  return taken;
}

absl::Status TrainedModel::Step(bool is_done, StepMetrics& metrics, bool& has_stepped) {
  for (SessionPart& part : parts_) {
    if (is_done || !part.has_gradients) continue;
    DDPRUN_ASSIGN_OR_RETURN(const bool taken, StepPart(part, metrics));
    has_stepped = has_stepped || taken;
  }
  if (has_stepped && average_ != nullptr) average_->Update();
  return is_done ? absl::OkStatus() : UpdateScale();
}

}  // namespace ddprun::worker
