#ifndef DDPRUN_WORKER_TORCH_ZERO_ZERO_SHARES_H_
#define DDPRUN_WORKER_TORCH_ZERO_ZERO_SHARES_H_

#include <torch/types.h>

#include <vector>

#include "absl/status/status.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"

namespace ddprun::worker {

// The own share of the parameters where it lies, in CPU memory a view of it:
// "<parameter>.parameter@<first element>" [n], numbered as ZeroOptimizer::ShardedState's.
ZeroState ShardedParameters(const ZeroImplementation& zero);

// Takes the own share from parts that together hold it, dealt out however; then all ranks have all
// parameters again, or, in stage 3, their shares of them. A collective.
// Errors: FAILED_PRECONDITION — parts are missing. Throws as c10d.
absl::Status RestoreParameters(ZeroImplementation& zero, const ZeroState& parts);

// The module's parameters that are whole on each rank: those that aren't trained.
std::vector<torch::Tensor> UntrainedParameters(const ZeroImplementation& zero);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ZERO_ZERO_SHARES_H_
