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
// A bf16 or fp16 parameter is updated by way of a float32 copy of it, its master, and what the
// optimizer keeps of it is float32, too: updates that are smaller than what the parameter can tell
// apart add up there. Checkpoints have it as "master_param". The gradients stay as they are. Who
// wants none takes torch::optim::AdamW.
// A parameter that is in a group twice, as LibTorch's module->parameters() has tied ones, counts
// once. Throws c10::Error where one is in two groups, as Python does.
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
  // After bf16 or fp16 parameters were changed by others than the optimizer, as by LoadWeights, or
  // the next step would put back what they were. Not after Checkpointer::Restore.
  void ParametersChanged();

 private:
  int64_t steps_taken_ = 0;
};

// The same for torch::optim::SGD, with momentum or without.
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
