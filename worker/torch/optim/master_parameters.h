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

// `tensor`, or a copy of it, with its elements in memory in the order of those of `like`, a tensor
// of the same sizes. The fused kernels walk through the memory of parameter, gradient and state
// side by side, so a state that was read from a checkpoint as [0, 1, 2, 3] beside a parameter in
// channels_last order [0, 2, 1, 3] would be paired with other elements, without an error.
torch::Tensor InOrderOf(const torch::Tensor& like, const torch::Tensor& tensor);

// A parameter's float32 copy; undefined if there is none. Of an OptimizerSet, its parts'.
torch::Tensor MasterOf(const torch::optim::Optimizer& optimizer, const torch::Tensor& parameter);
// Drops all copies, so that the next step makes them anew from the parameters.
void DropMasters(torch::optim::Optimizer& optimizer);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_MASTER_PARAMETERS_H_
