#include "worker/torch/checkpoint/finite_watch.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ddprun/parameters.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/optim/not_finite.h"
#include "worker/torch/optim/storage_on_use.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"

namespace ddprun::worker {
namespace {

NotFinite FoundIn(const CheckpointTensors& tensors, const std::string& name) {
  const auto found = tensors.find(name);
  return found != tensors.end() ? FindNotFinite(found->second) : NotFinite::kNothing;
}

}  // namespace

FiniteWatch::FiniteWatch(const torch::nn::Module& module, torch::optim::Optimizer& optimizer) {
  auto* zero = dynamic_cast<ZeroOptimizer*>(&optimizer);
  for (const NamedTensor& parameter : NamedParameters(module)) {
    // Parameters that stage 3 has shared out aren't whole here; SetUpZero has checked them.
    const bool is_finite =
        StaysInMemory(parameter.tensor)
            ? FindNotFinite(parameter.tensor) == NotFinite::kNothing
            : zero == nullptr || !zero->implementation().not_finite.contains(parameter.name);
    if (is_finite) parameters_.push_back(parameter.name);
  }
}

std::string FiniteWatch::FindBad(const CheckpointTensors& tensors) const {
  for (const std::string& name : parameters_) {
    const NotFinite found = FoundIn(tensors, kModelPrefix + name);
    if (found == NotFinite::kNothing) continue;
    return absl::StrCat("the parameter '", name, "' has ",
                        found == NotFinite::kNan ? "a NaN" : "an infinite value");
  }
  for (const auto& [name, tensor] : tensors) {
    if (!absl::StartsWith(name, kOptimizerPrefix) || accepted_.contains(name)) continue;
    if (FindNotFinite(tensor) == NotFinite::kNan) {
      return absl::StrCat("'", name, "' has a NaN");
    }
  }
  return "";
}

void FiniteWatch::Accept(const CheckpointTensors& tensors) {
  std::erase_if(parameters_, [&](const std::string& name) {
    return FoundIn(tensors, kModelPrefix + name) != NotFinite::kNothing;
  });
  for (const auto& [name, tensor] : tensors) {
    if (!absl::StartsWith(name, kOptimizerPrefix)) continue;
    if (FindNotFinite(tensor) == NotFinite::kNan) accepted_.insert(name);
  }
}

}  // namespace ddprun::worker
