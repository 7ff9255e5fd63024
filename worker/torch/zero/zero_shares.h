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

// Something of each own piece, [length], as a part of its parameter's: in CPU memory a view of it,
// "<parameter>.<field>@<first element>", numbered as ZeroOptimizer::ShardedState's.
ZeroState NamePieces(const ZeroImplementation& zero, const std::string& field,
                     const std::vector<torch::Tensor>& tensors);
// And back, from parts that together hold the own pieces, dealt out however: where these are.
// Errors: FAILED_PRECONDITION — parts are missing.
absl::StatusOr<std::vector<torch::Tensor>> CutPieces(const ZeroImplementation& zero,
                                                     const std::string& field,
                                                     const ZeroState& parts);

// Around a change of what the own pieces are: after it all ranks have all parameters, or, in stage
// 3, their shares of them. Collectives. Throw as c10d.
void BeforeSharesChange(ZeroImplementation& zero);
void PublishShares(ZeroImplementation& zero);

// Where others have changed parameters: what is updated elsewhere (offload_to_cpu) becomes that.
void RenewCopies(ZeroImplementation& zero);

// What ranks have in shares, whole, by the parameters' names, in CPU memory on rank `target`,
// nothing on the others; a collective. `share_of`: this rank's part of a bucket, [share]. Throws as
// c10d.
ZeroState GatherShares(const ZeroImplementation& zero, uint32_t target,
                       const std::function<torch::Tensor(size_t bucket)>& share_of);

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
