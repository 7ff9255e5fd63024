#ifndef DDPRUN_WORKER_TORCH_OPTIM_OPTIMIZER_SET_H_
#define DDPRUN_WORKER_TORCH_OPTIM_OPTIMIZER_SET_H_

#include <torch/optim/optimizer.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace ddprun::worker {

// Several optimizers as one, for code that saves or moves their state: a checkpoint, a new worker.
// The set's own groups list all parameters, but only the options of the parts have an effect. The
// state of part "critic" has its optimizer's names with the prefix "critic.".
class OptimizerSet : public torch::optim::Optimizer {
 public:
  struct Part {
    std::string name;  // without '.'
    std::unique_ptr<torch::optim::Optimizer> optimizer;
  };

  // Throws c10::Error — a parameter belongs to two parts. Requires: at least one.
  explicit OptimizerSet(std::vector<Part> parts)
      : Optimizer(AllGroups(parts), parts.front().optimizer->defaults().clone()),
        parts_(std::move(parts)) {}

  const std::vector<Part>& parts() const { return parts_; }
  // Steps all parts, one after the other.
  torch::Tensor step(LossClosure closure = nullptr) override {
    torch::Tensor loss;
    for (const Part& part : parts_) loss = part.optimizer->step(closure);
    return loss;
  }

 private:
  static std::vector<torch::optim::OptimizerParamGroup> AllGroups(const std::vector<Part>& parts) {
    std::vector<torch::optim::OptimizerParamGroup> all;
    for (const Part& part : parts) {
      for (const auto& group : part.optimizer->param_groups()) all.push_back(group);
    }
    return all;
  }

  std::vector<Part> parts_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_OPTIMIZER_SET_H_
