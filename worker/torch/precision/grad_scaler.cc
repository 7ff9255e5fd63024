#include "ddprun/grad_scaler.h"

#include <ATen/ops/_amp_foreach_non_finite_check_and_unscale.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>
#include <torch/optim/optimizer.h>

#include <limits>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/parameters.h"
#include "ddprun/zero_optimizer.h"

namespace ddprun {
namespace {

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
      if (parameter.grad().defined()) gradients.push_back(parameter.grad().detach());
    }
  }
  return gradients;
}

}  // namespace

GradScaler::GradScaler(const GradScalerOptions& options)
    : options_(options), scale_(options.enabled ? options.init_scale : 1) {}

torch::Tensor GradScaler::Scale(const torch::Tensor& loss) {
  return options_.enabled ? loss * scale_ : loss;
}

void GradScaler::Unscale(torch::optim::Optimizer& optimizer) {
  if (!options_.enabled || unscaled_) return;
  unscaled_ = true;
  auto* zero = dynamic_cast<ZeroOptimizer*>(&optimizer);
  const std::vector<torch::Tensor> all =
      zero != nullptr ? zero->ReducedGradients() : GradientsOf(optimizer);
  for (auto& [key, gradients] : GroupGradients(all)) {
    const auto single = torch::TensorOptions(gradients.front().device()).dtype(torch::kFloat);
    torch::Tensor overflowed = at::zeros({1}, single);
    const torch::Tensor inverse = at::full({1}, 1 / scale_, single);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, overflowed, inverse);
    overflowed_ = overflowed_ || overflowed.item<float>() != 0;
  }
  if (zero != nullptr) overflowed_ = zero->OnAnyRank(overflowed_);
}

bool GradScaler::Step(torch::optim::Optimizer& optimizer) {
  Unscale(optimizer);
  if (overflowed_) return false;
  optimizer.step();
  return true;
}

void GradScaler::Update() {
  if (!options_.enabled) return;
  if (overflowed_) {
    scale_ *= options_.backoff_factor;
    growth_tracker_ = 0;
  } else if (++growth_tracker_ == options_.growth_interval) {
    // Beyond float32's range nothing would be finite any more.
    const double grown = scale_ * options_.growth_factor;
    if (grown <= std::numeric_limits<float>::max()) scale_ = grown;
    growth_tracker_ = 0;
  }
  overflowed_ = unscaled_ = false;
}

void GradScaler::Restore(double scale, int64_t growth_tracker) {
  if (!options_.enabled) return;
  scale_ = scale;
  growth_tracker_ = growth_tracker;
}

GradScaler::Tensors GradScaler::SaveState() const {
  return {{"scale", at::full({}, scale_, torch::kDouble)},
          {"growth_tracker", at::full({}, growth_tracker_, torch::kLong)}};
}

absl::Status GradScaler::RestoreState(const Tensors& state) {
  const auto scale = state.find("scale");
  const auto tracker = state.find("growth_tracker");
  if (state.size() != 2 || scale == state.end() || tracker == state.end() ||
      scale->second.numel() != 1 || tracker->second.numel() != 1) {
    return absl::FailedPreconditionError(
        "the checkpoint's state of a GradScaler has something else than scale and growth_tracker");
  }
  Restore(scale->second.item<double>(), tracker->second.item<int64_t>());
  return absl::OkStatus();
}

}  // namespace ddprun
