#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_ACTIVATION_CHECKPOINT_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_ACTIVATION_CHECKPOINT_H_

#include <torch/types.h>

#include <functional>
#include <vector>

namespace ddprun {

// Runs a part of a model without keeping what its backward pass needs: the part is run a second
// time in the backward pass, which costs its time and saves its memory.
//
//   const auto part = [block](const torch::Tensor& in) { return block->forward(in); };
//   x = ddprun::CheckpointActivations(part, x);
//
// The second run sees the random generators (the CPU's and those of the inputs' GPUs) and autocast
// as the first one found them: outputs, gradients and all later random numbers are bit-identical
// with those of a plain call, also with dropout. What else `part` changes, it changes twice:
// BatchNorm's running statistics move two steps, as with Python's checkpoint().
//
// Works inside DistributedDataParallel; a part that is run several times a step needs static_graph.
// Without gradients (NoGradGuard) it is a plain call.
//
// Params: part: kept until the graph is gone, so it should hold its modules by their shared
// pointers; must compute the same when called again. input: any type and shape; not changed in
// place before the backward pass (LibTorch throws).
// Errors: throws what `part` throws, in the backward pass too.
// Threads: that of the model. Source: torch.utils.checkpoint, use_reentrant=True.
torch::Tensor CheckpointActivations(std::function<torch::Tensor(const torch::Tensor&)> part,
                                    const torch::Tensor& input);

// CheckpointActivations with several inputs and outputs; undefined tensors may be among them.
std::vector<torch::Tensor> CheckpointActivations(
    std::function<std::vector<torch::Tensor>(const std::vector<torch::Tensor>&)> part,
    const std::vector<torch::Tensor>& inputs);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_ACTIVATION_CHECKPOINT_H_
