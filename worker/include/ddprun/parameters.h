#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_PARAMETERS_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_PARAMETERS_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <string>
#include <unordered_set>
#include <vector>

// The parameters and buffers of a module, each once, as Python's named_parameters() has them.
// LibTorch's named_parameters() and parameters() list a tensor twice if it, or its module, is
// registered in two places (a GPT's `wte.weight` and `lm_head.weight`), and an optimizer of that
// list would step it twice.
//
//   ddprun::FusedAdamW optimizer(ddprun::Parameters(*model), torch::optim::AdamWOptions(3e-4));
//
// ddprun uses these lists wherever it goes through a module. Threads: one.
namespace ddprun {

struct NamedTensor {
  std::string name;  // the first one under which the tensor is registered
  torch::Tensor tensor;
};

// The tensors of `list`, each once, in order of their first place.
inline std::vector<torch::Tensor> DistinctTensors(const std::vector<torch::Tensor>& list) {
  std::unordered_set<const void*> seen;
  std::vector<torch::Tensor> distinct;
  for (const torch::Tensor& tensor : list) {
    if (seen.insert(tensor.unsafeGetTensorImpl()).second) distinct.push_back(tensor);
  }
  return distinct;
}

// The named tensors of `list`, each once, under its first name.
template <typename OrderedDict>
std::vector<NamedTensor> DistinctNamedTensors(const OrderedDict& list) {
  std::unordered_set<const void*> seen;
  std::vector<NamedTensor> distinct;
  for (const auto& item : list) {
    if (!seen.insert(item.value().unsafeGetTensorImpl()).second) continue;
    distinct.push_back({.name = item.key(), .tensor = item.value()});
  }
  return distinct;
}

inline std::vector<NamedTensor> NamedParameters(const torch::nn::Module& module) {
  return DistinctNamedTensors(module.named_parameters());
}

inline std::vector<NamedTensor> NamedBuffers(const torch::nn::Module& module) {
  return DistinctNamedTensors(module.named_buffers());
}

inline std::vector<torch::Tensor> Parameters(const torch::nn::Module& module) {
  return DistinctTensors(module.parameters());
}

inline std::vector<torch::Tensor> Buffers(const torch::nn::Module& module) {
  return DistinctTensors(module.buffers());
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_PARAMETERS_H_
