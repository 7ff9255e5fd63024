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

namespace ddprun {
namespace {

// The foreach kernels take tensors of one device and type at a time.
using GradientGroups =
    std::map<std::pair<std::string, torch::ScalarType>, std::vector<torch::Tensor>>;

GradientGroups GroupGradients(const torch::optim::Optimizer& optimizer) {
  GradientGroups groups;
  for (const auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      const torch::Tensor& gradient = parameter.grad();
      if (!gradient.defined()) continue;
      groups[{gradient.device().str(), gradient.scalar_type()}].push_back(gradient.detach());
    }
  }
  return groups;
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
  for (auto& [key, gradients] : GroupGradients(optimizer)) {
    const auto single = torch::TensorOptions(gradients.front().device()).dtype(torch::kFloat);
    torch::Tensor overflowed = at::zeros({1}, single);
    const torch::Tensor inverse = at::full({1}, 1 / scale_, single);
    at::_amp_foreach_non_finite_check_and_unscale_(gradients, overflowed, inverse);
    overflowed_ = overflowed_ || overflowed.item<float>() != 0;
  }
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

}  // namespace ddprun
