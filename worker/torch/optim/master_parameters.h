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

// What the fused optimizers keep of a parameter: LibTorch's state, and that copy, in float32 as is
// then all of the state.
template <typename State>
struct WithMaster : State {
  torch::Tensor master_param;  // undefined: the parameter is none of these, or had no step yet

  std::unique_ptr<torch::optim::OptimizerParamState> clone() const override {
    return std::make_unique<WithMaster>(*this);
  }
};

using FusedAdamWState = WithMaster<torch::optim::AdamWParamState>;
using FusedSgdState = WithMaster<torch::optim::SGDParamState>;

// The copy; undefined: there is none.
torch::Tensor MasterOf(const torch::optim::Optimizer& optimizer, const torch::Tensor& parameter);
// Has the next step make all copies anew, from the parameters.
void DropMasters(torch::optim::Optimizer& optimizer);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_MASTER_PARAMETERS_H_
