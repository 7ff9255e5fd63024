#ifndef DDPRUN_WORKER_TORCH_ZERO_ZERO_SETUP_H_
#define DDPRUN_WORKER_TORCH_ZERO_ZERO_SETUP_H_

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/context.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"

namespace ddprun::worker {

inline constexpr size_t kZeroBroadcastBytes = size_t{250} << 20;

// Fills an implementation that has module, options and `make`, or fills it anew for another
// generation; parameters without memory get their values later. A collective.
// Errors: as ZeroOptimizer::Create; no parameter was moved then, unless init_sync broke. Throws as
// c10d.
absl::Status SetUpZero(ZeroImplementation& zero, Context& context);

// The 2-norm of all ranks' `gradients` together; a collective.
// Errors: as ddprun::ClipGradNorm, with the same text on every rank.
absl::StatusOr<double> NormOverRanks(const ZeroImplementation& zero,
                                     const std::vector<torch::Tensor>& gradients);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ZERO_ZERO_SETUP_H_
