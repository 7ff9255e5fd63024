#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_OPTIMIZER_KIND_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_OPTIMIZER_KIND_H_

#include <torch/types.h>

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

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
// Another one, made by OptimizerOf (ddprun/any_optimizer.h).
struct AnyOptimizer {
  struct Group {
    std::vector<torch::Tensor> parameters;
    double learning_rate = 0;
  };
  std::string name;  // of its class
  std::function<std::unique_ptr<torch::optim::Optimizer>(const std::vector<Group>& groups)> make;
};
using OptimizerKind = std::variant<AdamW, Sgd, AnyOptimizer>;

// Parameters that are trained in a way of their own.
struct ParameterGroup {
  std::vector<torch::Tensor> parameters = {};
  double learning_rate_factor = 1;          // of the program's; above 0
  std::optional<double> weight_decay = {};  // in place of the program's
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_OPTIMIZER_KIND_H_
