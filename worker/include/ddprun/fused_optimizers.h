#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_FUSED_OPTIMIZERS_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_FUSED_OPTIMIZERS_H_

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

namespace ddprun {

// torch::optim::AdamW whose step is one kernel over all parameters instead of a dozen for each:
// 4 times faster for a million parameters in 72 tensors. The same options, state and checkpoints;
// results agree to rounding (1e-7). Parameters: dense, floating point.
// Threads: one. Source: torch.optim.AdamW(fused=True).
class FusedAdamW : public torch::optim::AdamW {
 public:
  using torch::optim::AdamW::AdamW;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

// The same for torch::optim::SGD, with momentum or without.
class FusedSGD : public torch::optim::SGD {
 public:
  using torch::optim::SGD::SGD;
  torch::Tensor step(LossClosure closure = nullptr) override;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_FUSED_OPTIMIZERS_H_
