#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_PEER_STATE_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_PEER_STATE_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"

namespace ddprun::worker {

// A state that a rank has. Ranks do a step of a generation together, so that two states of one
// version are the same bits. Two that have only come equally far may differ: a step is done again
// when those who did it are killed, or aren't there.
struct StateVersion {
  TrainingProgress progress;
  // In which its last step was done; or, before the first one, training was begun or resumed.
  uint64_t generation = 0;

  friend bool operator==(const StateVersion&, const StateVersion&) = default;
};

// What of a training is the same on all ranks between two steps.
struct ReplicatedState {
  torch::nn::Module& module;
  torch::optim::Optimizer& optimizer;                // not a ZeroOptimizer
  std::map<std::string, CheckpointedState*> extras;  // those that don't differ by rank
  ExponentialMovingAverage* average = nullptr;       // null = none
};

// Gives all ranks the state of the one that has come furthest; of several, the version of the
// latest generation. `own`: what this rank has; none: it has just been started. Ranks that were
// just started seed their random generators by step and rank. A collective; what it sends takes as
// much memory once more on all ranks, unless all have the same version already. Returns: the
// version that all ranks have now; none: no rank has any state. Errors: UNAVAILABLE, "PeerError: …"
// — a peer is gone. FAILED_PRECONDITION — ranks have different models or optimizers. UNIMPLEMENTED
// — an optimizer whose state can't be read. After an error this rank's state is as before, or the
// other's.
absl::StatusOr<std::optional<StateVersion>> TakeNewestState(Context& context,
                                                            const ReplicatedState& state,
                                                            const std::optional<StateVersion>& own);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_PEER_STATE_H_
