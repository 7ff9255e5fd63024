#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_PEER_STATE_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_PEER_STATE_H_

#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"

namespace ddprun::worker {

// A state that a rank has. Ranks do a step of a generation together, so that two states of one
// version are the same bits. Two that have only come equally far may differ: a step is done again
// when those who did it are killed, or aren't there.
struct StateVersion {
  TrainingProgress progress;
  // In which its last step was done; or, before the first one, training was begun or resumed.
  uint64_t generation = 0;
  // What else of it a step doesn't change, as its owner numbers it; of two the higher one counts.
  int64_t marks = 0;

  friend bool operator==(const StateVersion&, const StateVersion&) = default;
};

// What of a training is the same on all ranks between two steps.
struct ReplicatedState {
  torch::nn::Module& module;
  torch::optim::Optimizer& optimizer;                // not a ZeroOptimizer
  std::map<std::string, CheckpointedState*> extras;  // those that don't differ by rank
  ExponentialMovingAverage* average = nullptr;       // null = none
};

// What a rank says of its state at the beginning of a generation.
struct StateOffer {
  std::optional<StateVersion> version;  // none: it has just been started
  int64_t bytes = 0;                    // as StateBytes
  absl::Duration step_time;             // that its last step took; 0 = unknown
};

// What all ranks then know.
struct KnownStates {
  std::vector<std::optional<StateVersion>> versions;  // by rank
  // The lowest of those that have the newest state: of who has come furthest; of several, the
  // version of the latest generation. All that follows is by its word.
  uint32_t leader = 0;
  std::optional<StateVersion> newest;  // none: no rank has any state
  int64_t bytes = 0;
  absl::Duration step_time;

  bool HasIt(uint32_t rank) const { return versions[rank] == newest; }
  bool AllHaveIt() const;
};

// From all ranks' offers, by rank. Pure.
KnownStates CompareOffers(const std::vector<StateOffer>& offers);

// Of what only the optimizer's step changes, which is most of it. 0: it can't be read.
int64_t StateBytes(const ReplicatedState& state);

// Gives all ranks the newest state, while they wait: a collective. What it sends takes as much
// memory once more on all ranks. Requires: some have it, and not all.
// Errors: UNAVAILABLE, "PeerError: …" — a peer is gone. FAILED_PRECONDITION — ranks have different
// models or optimizers. UNIMPLEMENTED — an optimizer whose state can't be read. After an error this
// rank's state is as before, or the other's.
absl::Status TakeNewestState(Context& context, const ReplicatedState& state,
                             const KnownStates& known);

// The parts of a state, for TakeNewestState and Healing. Tensors by the names of a checkpoint.

// What only the optimizer's step changes: parameters, the optimizer's state, averages; without a
// copy where they lie in CPU memory without gaps.
absl::StatusOr<CheckpointTensors> LastingTensors(const ReplicatedState& state);
// The rest: buffers, extras and progress.
CheckpointTensors PassingTensors(const ReplicatedState& state, const TrainingProgress& progress);
absl::Status RestoreExtras(const CheckpointTensors& tensors, const ReplicatedState& state);
// All but the extras. Requires: both parts.
absl::Status RestoreLasting(const CheckpointTensors& tensors, const ReplicatedState& state);
// The bytes of a file of them: U8[n].
absl::StatusOr<torch::Tensor> EncodeTensors(const CheckpointTensors& tensors);
absl::StatusOr<CheckpointTensors> DecodeTensors(const torch::Tensor& bytes);
// `leader`'s bytes on all ranks. `own`: there; an error: all ranks get one. A collective.
absl::StatusOr<torch::Tensor> SendFromLeader(Context& context, uint32_t leader,
                                             const absl::StatusOr<torch::Tensor>& own);

// For tests: told before each message of a state, by the thread that gives or takes it, and once
// more when there are none left. Null = nobody is. Threads: set while there is no transfer.
using TransferWatch = std::function<void(bool gives, size_t message, size_t messages)>;
void WatchTransfers(TransferWatch watch);
void NotifyTransferWatch(bool gives, size_t message, size_t messages);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_PEER_STATE_H_
