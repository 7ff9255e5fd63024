#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_FUSED_OPTIMIZERS_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_FUSED_OPTIMIZERS_H_

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <vector>

namespace ddprun {

// torch::optim::AdamW whose step is one kernel over all parameters instead of a dozen for each:
// 4 times faster for a million parameters in 72 tensors. The same options, state and checkpoints;
// results agree to rounding (1e-7). Parameters: dense, floating point.
// A bf16 or fp16 parameter is updated in a float32 copy of it, its master, where updates below the
// parameter's precision add up. The optimizer's state is float32, too, and checkpoints have the
// master as "master_param". Gradients keep their type. torch::optim::AdamW has no masters.
// A parameter that is in a group twice, as tied ones in LibTorch's module->parameters(), counts
// once. Throws c10::Error if a parameter is in two groups, as Python does.
// Threads: one. Source: torch.optim.AdamW(fused=True).
//
// Always, without an option: at a rate of 1e-3, AdamW's step of a bf16 parameter near 1 is an
// eighth of its last place and would be rounded away, silently. DeepSpeed, Apex and Megatron keep
// masters by default, too. The price is 12 bytes a parameter instead of 4.
class FusedAdamW : public torch::optim::AdamW {
 public:
  explicit FusedAdamW(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                      torch::optim::AdamWOptions defaults = {});
  explicit FusedAdamW(std::vector<torch::Tensor> parameters,
                      torch::optim::AdamWOptions defaults = {});
  torch::Tensor step(LossClosure closure = nullptr) override;
  void load(torch::serialize::InputArchive& archive) override;
  // How often step() was called.
  int64_t steps_taken() const { return steps_taken_; }
  // Call it after code other than the optimizer (LoadWeights) has changed bf16 or fp16 parameters.
  // Otherwise the next step overwrites them from the masters. Checkpointer::Restore doesn't need
  // it.
  void ParametersChanged();

 private:
  int64_t steps_taken_ = 0;
};

// torch::optim::SGD, with momentum or without, as FusedAdamW is torch::optim::AdamW.
class FusedSGD : public torch::optim::SGD {
 public:
  explicit FusedSGD(const std::vector<torch::optim::OptimizerParamGroup>& groups,
                    torch::optim::SGDOptions defaults);
  explicit FusedSGD(std::vector<torch::Tensor> parameters, torch::optim::SGDOptions defaults);
  torch::Tensor step(LossClosure closure = nullptr) override;
  void load(torch::serialize::InputArchive& archive) override;
  int64_t steps_taken() const { return steps_taken_; }
  void ParametersChanged();

 private:
  int64_t steps_taken_ = 0;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_FUSED_OPTIMIZERS_H_
