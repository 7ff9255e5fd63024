#ifndef DDPRUN_TESTS_WORKER_SESSION_PROBE_PARTS_H_
#define DDPRUN_TESTS_WORKER_SESSION_PROBE_PARTS_H_

#include <torch/types.h>

#include <cstdint>
#include <functional>
#include <string>

#include "ddprun/session.h"
#include "ddprun/status_error.h"
#include "ddprun/zero_optimizer.h"

namespace ddprun::testing {

// What the modes of session_probe have in common: points of a line, and digests.
inline Dataset Points(int64_t count = 64) {
  const torch::Tensor x = torch::arange(count).to(torch::kFloat).view({-1, 1}) / 64;
  return TensorDataset(x, x * 3 + 1);
}

inline torch::Tensor Loss(const torch::Tensor& y, const Batch& batch) {
  return (y - batch.targets).square().mean();
}

// A digest of the module's parameters.
inline uint64_t Digest(torch::nn::Module& module) {
  std::string bytes;
  for (const torch::Tensor& parameter : module.parameters()) {
    const torch::Tensor plain = parameter.detach().cpu().contiguous();
    bytes.append(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  }
  return std::hash<std::string>()(bytes);
}

// A digest of the bits of a rank's share of optimizer and parameters.
inline uint64_t ShareDigest(ZeroOptimizer& zero) {
  std::string bytes;
  const auto add = [&](const torch::Tensor& tensor) {
    const torch::Tensor plain = tensor.detach().cpu().contiguous();
    bytes.append(static_cast<const char*>(plain.const_data_ptr()), plain.nbytes());
  };
  for (const auto& [name, tensor] : OrThrow(zero.ShardedState())) {
    bytes += name;
    add(tensor);
  }
  for (const auto& group : zero.param_groups()) {
    for (const torch::Tensor& share : group.params()) add(share);
  }
  return std::hash<std::string>()(bytes);
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_SESSION_PROBE_PARTS_H_
