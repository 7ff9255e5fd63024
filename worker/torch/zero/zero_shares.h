#ifndef DDPRUN_WORKER_TORCH_ZERO_ZERO_SHARES_H_
#define DDPRUN_WORKER_TORCH_ZERO_ZERO_SHARES_H_

#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/torch/zero/zero_optimizer_implementation.h"

namespace ddprun::worker {

// Names tensors of the own pieces, [length] each, as parts of a parameter's field:
// "<parameter>.<field>@<first element>", numbered as in ZeroOptimizer::ShardedState. In CPU memory;
// views if the tensors are there already.
ZeroState NamePieces(const ZeroImplementation& zero, const std::string& field,
                     const std::vector<torch::Tensor>& tensors);
// The inverse: the own pieces' tensors, on the pieces' device, from parts that together hold them,
// however they were cut.
// Errors: FAILED_PRECONDITION — parts are missing.
absl::StatusOr<std::vector<torch::Tensor>> CutPieces(const ZeroImplementation& zero,
                                                     const std::string& field,
                                                     const ZeroState& parts);

// Call them before and after the own pieces are changed: then all ranks have all parameters, or, in
// stage 3, their shares of them. Collectives. Throw as c10d.
void BeforeSharesChange(ZeroImplementation& zero);
void PublishShares(ZeroImplementation& zero);

// Call it after other code has changed parameters: copies them to where the optimizer updates them
// (offload_to_cpu).
void RenewCopies(ZeroImplementation& zero);

// Gathers shares to whole tensors, by the parameters' names, in CPU memory on rank `target`;
// returns nothing on the others. A collective. `share_of`: this rank's part of a bucket, [share].
// Throws as c10d.
ZeroState GatherShares(const ZeroImplementation& zero, uint32_t target,
                       const std::function<torch::Tensor(size_t bucket)>& share_of);

// The own share of the parameters, in CPU memory (a view if it is there already):
// "<parameter>.parameter@<first element>" [n], numbered as in ZeroOptimizer::ShardedState.
ZeroState ShardedParameters(const ZeroImplementation& zero);

// Takes the own share from parts that together hold it, however they were cut; then all ranks have
// all parameters again, or, in stage 3, their shares of them. A collective.
// Errors: FAILED_PRECONDITION — parts are missing. Throws as c10d.
absl::Status RestoreParameters(ZeroImplementation& zero, const ZeroState& parts);

// The module's parameters that are whole on each rank: those that aren't trained.
std::vector<torch::Tensor> UntrainedParameters(const ZeroImplementation& zero);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ZERO_ZERO_SHARES_H_
