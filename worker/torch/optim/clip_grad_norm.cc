#include "ddprun/clip_grad_norm.h"

#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/stack.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ddprun/parameters.h"
#include "worker/torch/optim/not_finite.h"
#include "worker/torch/optim/storage_on_use.h"

namespace ddprun {
namespace {

bool AllFinite(const torch::Tensor& tensor) { return at::isfinite(tensor).all().item<bool>(); }

// The name of the first gradient, or parameter, that isn't finite; "" = all are.
std::string FirstNotFinite(torch::nn::Module& module, bool gradients) {
  for (const NamedTensor& parameter : NamedParameters(module)) {
    const torch::Tensor& tensor = gradients ? parameter.tensor.grad() : parameter.tensor;
    // A single rank can't read a parameter that is shared out.
    if (!tensor.defined() || !worker::StaysInMemory(tensor)) continue;
    if (!AllFinite(tensor)) return parameter.name;
  }
  return "";
}

bool IsSharedOut(const torch::nn::Module& module) {
  const std::vector<torch::Tensor> parameters = Parameters(module);
  return !std::all_of(parameters.begin(), parameters.end(), worker::StaysInMemory);
}

}  // namespace

absl::StatusOr<double> ClipGradNorm(torch::nn::Module& module, double max_norm) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> gradients;
  for (const NamedTensor& parameter : NamedParameters(module)) {
    if (worker::GradientIsTaken(parameter.tensor)) {
      return absl::FailedPreconditionError(
          absl::StrCat("the gradient of '", parameter.name,
                       "' is in the shares of a ZeroOptimizer (stage 2 or 3): call its "
                       "ClipGradNorm"));
    }
    if (parameter.tensor.grad().defined()) gradients.push_back(parameter.tensor.grad());
  }
  if (gradients.empty()) return 0.0;
  const double norm = at::stack(at::_foreach_norm(gradients)).norm().item<double>();
  if (!std::isfinite(norm)) {
    return worker::GradientsNotFinite(norm, FirstNotFinite(module, /*gradients=*/true));
  }
  // As torch: a factor of 1 is not multiplied.
  const double factor = max_norm / (norm + 1e-6);
  if (factor < 1) at::_foreach_mul_(gradients, factor);
  return norm;
}

absl::Status CheckLoss(const torch::Tensor& loss, torch::nn::Module& module) {
  const auto value = loss.item<double>();
  if (std::isfinite(value)) return absl::OkStatus();
  const torch::NoGradGuard no_grad;
  const std::string name = FirstNotFinite(module, /*gradients=*/false);
  std::string found = "; all parameters are finite: look at the batch and at the loss function";
  if (!name.empty()) {
    found = absl::StrCat("; the parameter '", name, "' has a NaN or infinite value");
  } else if (IsSharedOut(module)) {
    found =
        "; look at the batch and at the loss function (parameters that are shared out were not "
        "looked at: with zero_stage 2 this names the first bad one)";
  }
  return absl::FailedPreconditionError(absl::StrCat("the loss is ", value, found));
}

}  // namespace ddprun
