#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_OPTIMIZER_KIND_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_OPTIMIZER_KIND_H_

#include <torch/types.h>

#include <optional>
#include <utility>
#include <variant>
#include <vector>

namespace ddprun {

// The optimizer: AdamW(), Sgd{.momentum = 0.9}. Learning rate and weight decay are options, which
// the command line can change: AdamW(3e-4) doesn't compile.
struct FieldsByName {};
struct AdamW {
  FieldsByName only = {};
  std::pair<double, double> betas = {0.9, 0.999};
  double eps = 1e-8;
};
struct Sgd {
  FieldsByName only = {};
  double momentum = 0;
  bool nesterov = false;
};
using OptimizerKind = std::variant<AdamW, Sgd>;

// Parameters that are trained in a way of their own.
struct ParameterGroup {
  std::vector<torch::Tensor> parameters = {};
  double learning_rate_factor = 1;          // of the program's; above 0
  std::optional<double> weight_decay = {};  // in place of the program's
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_OPTIMIZER_KIND_H_
