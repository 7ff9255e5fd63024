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

// Identifies a state that a rank has. Ranks do a step of a generation together, so two states of
// the same version have the same bits. Two states with only the same progress may differ, because a
// step is done again if the ranks that did it are killed or absent.
struct StateVersion {
  TrainingProgress progress;
  // The generation in which the last step was done; before the first step, the one in which
  // training began or was resumed.
  uint64_t generation = 0;
  // Changes of the state between steps, numbered by its owner; a state with a higher number is
  // newer.
  int64_t marks = 0;

  friend bool operator==(const StateVersion&, const StateVersion&) = default;
};

// The parts of a training that are the same on all ranks between two steps.
struct ReplicatedState {
  torch::nn::Module& module;
  torch::optim::Optimizer& optimizer;                // not a ZeroOptimizer
  std::map<std::string, CheckpointedState*> extras;  // without states that differ by rank
  ExponentialMovingAverage* average = nullptr;       // null = none
};

// A rank's report of its state at the beginning of a generation.
struct StateOffer {
  std::optional<StateVersion> version;  // nullopt: the rank has just been started
  int64_t bytes = 0;                    // StateBytes()
  absl::Duration step_time;             // of its last step; 0 = unknown
};

// The comparison of all ranks' reports, the same on every rank.
struct KnownStates {
  std::vector<std::optional<StateVersion>> versions;  // by rank
  // The lowest rank that has the newest state: the one that has come furthest, or, of several, that
  // of the latest generation. All fields below are this rank's.
  uint32_t leader = 0;
  std::optional<StateVersion> newest;  // nullopt: no rank has a state
  int64_t bytes = 0;
  absl::Duration step_time;

  bool HasIt(uint32_t rank) const { return versions[rank] == newest; }
  bool AllHaveIt() const;
};

// Compares all ranks' offers, by rank. Pure.
KnownStates CompareOffers(const std::vector<StateOffer>& offers);

// The bytes that only the optimizer's step changes, which is most of a state. 0: the optimizer's
// state can't be read.
int64_t StateBytes(const ReplicatedState& state);

// Sends all ranks the newest state, while they wait: a collective. Needs memory for one more copy
// of the state on all ranks. Requires: some ranks have it, and not all.
// Errors: UNAVAILABLE, "PeerError: …" — a peer is gone. FAILED_PRECONDITION — ranks have different
// models or optimizers. UNIMPLEMENTED — the optimizer's state can't be read. After an error this
// rank has its old state or the new one.
absl::Status TakeNewestState(Context& context, const ReplicatedState& state,
                             const KnownStates& known);

// The parts of a state, for TakeNewestState and Healing. Tensors by the names of a checkpoint.

// The tensors that only the optimizer's step changes: parameters, the optimizer's state, averages.
// Contiguous tensors in CPU memory aren't copied.
absl::StatusOr<CheckpointTensors> LastingTensors(const ReplicatedState& state);
// The rest: buffers, extras and progress.
CheckpointTensors PassingTensors(const ReplicatedState& state, const TrainingProgress& progress);
absl::Status RestoreExtras(const CheckpointTensors& tensors, const ReplicatedState& state);
// Restores all but the extras. Requires: `tensors` has both parts.
absl::Status RestoreLasting(const CheckpointTensors& tensors, const ReplicatedState& state);
// The tensors as the bytes of a file: U8[n].
absl::StatusOr<torch::Tensor> EncodeTensors(const CheckpointTensors& tensors);
absl::StatusOr<CheckpointTensors> DecodeTensors(const torch::Tensor& bytes);
// Sends `leader`'s bytes to all ranks; a collective. `own`: the bytes on `leader`, or an error,
// which is then an error on all ranks.
absl::StatusOr<torch::Tensor> SendFromLeader(Context& context, uint32_t leader,
                                             const absl::StatusOr<torch::Tensor>& own);

// For tests: a function that is called before each message of a state, by the thread that sends or
// receives it, and once more after the last one. Null = none. Threads: set it while there is no
// transfer.
using TransferWatch = std::function<void(bool gives, size_t message, size_t messages)>;
void WatchTransfers(TransferWatch watch);
void NotifyTransferWatch(bool gives, size_t message, size_t messages);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_PEER_STATE_H_
