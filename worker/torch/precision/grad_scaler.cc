#include "ddprun/grad_scaler.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "ddprun/clip_grad_norm.h"
#include "ddprun/parameters.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/optim/not_finite.h"

namespace ddprun {
namespace {

// The growth tracker that a scaler which isn't enabled has in a checkpoint; no other scaler reaches
// it. Such a scaler has no state: its scale of 1 was never tried in a step, and an fp16 run that
// resumed with it would lose small gradients until the scale has grown, 2000 steps a doubling.
constexpr int64_t kOff = -1;

// The foreach kernels take tensors of one device and type at a time.
using GradientGroups =
    std::map<std::pair<std::string, torch::ScalarType>, std::vector<torch::Tensor>>;

GradientGroups GroupGradients(const std::vector<torch::Tensor>& gradients) {
  GradientGroups groups;
  for (const torch::Tensor& gradient : gradients) {
    groups[{gradient.device().str(), gradient.scalar_type()}].push_back(gradient);
  }
  return groups;
}

std::vector<torch::Tensor> GradientsOf(const torch::optim::Optimizer& optimizer) {
  std::vector<torch::Tensor> gradients;
  for (const auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : DistinctTensors(group.params())) {
      const torch::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      gradients.push_back(gradient.is_sparse() ? gradient._values() : gradient.detach());
    }
  }
  return gradients;
}

// Divides the gradients by `scale`. Returns whether one isn't finite.
absl::StatusOr<bool> Divide(const std::vector<torch::Tensor>& all, double scale) {
  bool overflowed = false;
  for (const torch::Tensor& gradient : all) {
    if (gradient.scalar_type() != torch::kHalf) continue;
    return absl::FailedPreconditionError(
        "a GradScaler can't unscale fp16 gradients: what they lost below fp16's range doesn't "
        "come back; keep the parameters in float32, and compute inside an Autocast");
  }
  for (auto& [key, gradients] : GroupGradients(all)) {
    const auto single = torch::TensorOptions(gradients.front().device()).dtype(torch::kFloat);
    torch::Tensor found = at::zeros({1}, single);
    const torch::Tensor inverse = at::full({1}, 1 / scale, single);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, found, inverse);
    overflowed = overflowed || found.item<float>() != 0;
  }
  return overflowed;
}

absl::Status WrongOrder(absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat(
      what,
      " since the last Update(): a step is Scale, for each optimizer Unscale or ClipGradNorm "
      "if at all and Step, then Update"));
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(options.enabled ? options.init_scale : 1) {}

torch::Tensor GradScaler::Scale(const torch::Tensor& loss) {
  return options_.enabled ? loss * scale_ : loss;
}

absl::Status GradScaler::UnscaleOnce(torch::optim::Optimizer& optimizer,
                                     OptimizerState& state) const {
  return worker::CatchExceptions([&]() -> absl::Status {
    auto* zero = dynamic_cast<ZeroOptimizer*>(&optimizer);
    if (zero != nullptr) DDPRUN_RETURN_IF_ERROR(zero->FinishBackward());
    DDPRUN_ASSIGN_OR_RETURN(
        state.overflowed,
        Divide(zero != nullptr ? zero->ReducedGradients() : GradientsOf(optimizer), scale_));
    if (zero != nullptr) state.overflowed = zero->OnAnyRank(state.overflowed);
    state.stage = Stage::kUnscaled;
    return absl::OkStatus();
  });
}

absl::Status GradScaler::Unscale(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled) return absl::OkStatus();
  OptimizerState& state = states_[&optimizer];
  if (state.stage == Stage::kUnscaled) {
    return WrongOrder("Unscale() has already been called on this optimizer");
  }
  if (state.stage == Stage::kStepped) {
    return WrongOrder("Unscale() is called after Step() of this optimizer");
  }
  return UnscaleOnce(optimizer, state);
}

absl::StatusOr<double> GradScaler::ClipGradNorm(torch::optim::Optimizer& optimizer,
                                                torch::nn::Module& module, double max_norm) {
  auto* zero = dynamic_cast<ZeroOptimizer*>(&optimizer);
  const auto clip = [&] {
    return zero != nullptr ? zero->ClipGradNorm(max_norm) : ddprun::ClipGradNorm(module, max_norm);
  };
  if (!options_.enabled) return clip();
  OptimizerState& state = states_[&optimizer];
  if (state.stage == Stage::kStepped) {
    return WrongOrder("ClipGradNorm() is called after Step() of this optimizer");
  }
  if (state.stage == Stage::kReady) DDPRUN_RETURN_IF_ERROR(UnscaleOnce(optimizer, state));
  // Known on all ranks, so no collective is needed, and there is nothing to clip.
  if (state.overflowed) return std::numeric_limits<double>::infinity();
  absl::StatusOr<double> norm = clip();
  if (!worker::IsNotFinite(norm.status())) return norm;
  state.overflowed = true;
  return std::numeric_limits<double>::infinity();
}

absl::StatusOr<bool> GradScaler::Step(torch::optim::Optimizer& optimizer) {
  OptimizerState passing = {.stage = Stage::kUnscaled};
  OptimizerState& state = options_.enabled ? states_[&optimizer] : passing;
  if (state.stage == Stage::kStepped) {
    return WrongOrder("Step() has already been called on this optimizer");
  }
  if (state.stage == Stage::kReady) DDPRUN_RETURN_IF_ERROR(UnscaleOnce(optimizer, state));
  state.stage = Stage::kStepped;
  if (state.overflowed) return false;
  DDPRUN_RETURN_IF_ERROR(worker::CatchExceptions([&]() -> absl::Status {
    optimizer.step();
    return absl::OkStatus();
  }));
  return true;
}

// Rounds to float32, as in Python; beyond its range no gradient would be finite.
void GradScaler::SetScale(double scale) {
  const auto single = static_cast<float>(scale);
  if (std::isfinite(single)) scale_ = single;
}

absl::Status GradScaler::Update() {
  if (!options_.enabled) return absl::OkStatus();
  bool checked = false;
  bool overflowed = false;
  for (const auto& [optimizer, state] : states_) {
    checked = checked || state.stage != Stage::kReady;
    overflowed = overflowed || state.overflowed;
  }
  if (!checked) return WrongOrder("no optimizer was unscaled");
  if (overflowed) {
    SetScale(scale_ * options_.backoff_factor);
    growth_tracker_ = 0;
  } else if (++growth_tracker_ == options_.growth_interval) {
    SetScale(scale_ * options_.growth_factor);
    growth_tracker_ = 0;
  }
  states_.clear();
  return absl::OkStatus();
}

void GradScaler::Restore(double scale, int64_t growth_tracker) {
  if (!options_.enabled) return;
  scale_ = scale;
  growth_tracker_ = growth_tracker;
  states_.clear();
}

GradScaler::Tensors GradScaler::SaveState() const {
  return {
      {"scale", at::full({}, scale_, torch::kDouble)},
      {"growth_tracker", at::full({}, options_.enabled ? growth_tracker_ : kOff, torch::kLong)}};
}

absl::Status GradScaler::RestoreState(const Tensors& state) {
  const auto scale = state.find("scale");
  const auto tracker = state.find("growth_tracker");
  if (state.size() != 2 || scale == state.end() || tracker == state.end() ||
      scale->second.numel() != 1 || tracker->second.numel() != 1) {
    return absl::FailedPreconditionError(
        "the checkpoint's state of a GradScaler has something else than scale and growth_tracker");
  }
  const auto steps = tracker->second.item<int64_t>();
  if (steps != kOff) Restore(scale->second.item<double>(), steps);
  return absl::OkStatus();
}

}  // namespace ddprun
