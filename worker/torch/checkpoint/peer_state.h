#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_PEER_STATE_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_PEER_STATE_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"

namespace ddprun::worker {

// What of a training is the same on all ranks between two steps.
struct ReplicatedState {
  torch::nn::Module& module;
  torch::optim::Optimizer& optimizer;                // not a ZeroOptimizer
  std::map<std::string, CheckpointedState*> extras;  // those that don't differ by rank
};

// Gives all ranks the state of the one that has come furthest, the lowest of several. `own`: how
// far this rank has come; none: it has just been started. Ranks that were just started seed their
// random generators by step and rank. A collective; what it sends takes as much memory once more on
// all ranks, unless all have the same already. Returns: how far training has come, the same on all
// ranks; none: no rank has come anywhere. Errors: UNAVAILABLE, "PeerError: …" — a peer is gone.
// FAILED_PRECONDITION — ranks have different models or optimizers. UNIMPLEMENTED — an optimizer
// whose state can't be read. After an error this rank's state is as before, or the other's.
absl::StatusOr<std::optional<TrainingProgress>> TakeNewestState(
    Context& context, const ReplicatedState& state, const std::optional<TrainingProgress>& own);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_PEER_STATE_H_
