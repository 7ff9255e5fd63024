#ifndef DDPRUN_WORKER_TORCH_OPTIM_MARKED_DATA_H_
#define DDPRUN_WORKER_TORCH_OPTIM_MARKED_DATA_H_

#include <torch/types.h>

namespace ddprun::worker {

// tensor.set_data(data), also for a marked tensor (storage_on_use.h) that has lost its memory with
// its owner.
void SetDataOfMarked(torch::Tensor& tensor, const torch::Tensor& data);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_MARKED_DATA_H_
