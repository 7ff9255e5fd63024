#ifndef DDPRUN_WORKER_TORCH_OPTIM_MASTER_PARAMETERS_H_
#define DDPRUN_WORKER_TORCH_OPTIM_MASTER_PARAMETERS_H_

#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include <memory>

namespace ddprun::worker {

// Whether the fused optimizers update a float32 copy of a parameter of this type.
inline bool HasMaster(torch::ScalarType type) {
  return type == torch::kBFloat16 || type == torch::kHalf;
}

// The fused optimizers' state of a parameter: LibTorch's, and the float32 copy if there is one. The
// rest of the state is then float32 as well.
template <typename State>
struct WithMaster : State {
  torch::Tensor master_param;  // undefined: no copy for this type, or before the first step

  std::unique_ptr<torch::optim::OptimizerParamState> clone() const override {
    return std::make_unique<WithMaster>(*this);
  }
};

using FusedAdamWState = WithMaster<torch::optim::AdamWParamState>;
using FusedSgdState = WithMaster<torch::optim::SGDParamState>;

// A parameter's float32 copy; undefined if there is none.
torch::Tensor MasterOf(const torch::optim::Optimizer& optimizer, const torch::Tensor& parameter);
// Drops all copies, so that the next step makes them anew from the parameters.
void DropMasters(torch::optim::Optimizer& optimizer);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_MASTER_PARAMETERS_H_
