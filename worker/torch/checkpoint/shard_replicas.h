#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_SHARD_REPLICAS_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_SHARD_REPLICAS_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <future>
#include <map>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/checkpoint/replica_plan.h"

namespace ddprun::worker {

// A training whose state ZeRO has dealt out.
struct ShardedTraining {
  torch::nn::Module& module;
  ZeroOptimizer& zero;
  std::map<std::string, CheckpointedState*> extras;  // those that don't differ by rank
  ExponentialMovingAverage* average = nullptr;       // null = none
};

// Keeps what each rank alone has, as it was after a step, in its own memory and in that of other
// ranks, on other hosts first. Where ranks are gone, those that are left, and new ones, put a whole
// state together from it: the newest one of which every share is somewhere.
//
//   Begin(n)   after step n: a copy of the own share begins its way, beside training
//   Commit()   before the optimizer changes anything in step n + 1: all copies are where they
//              belong, and those of the state before are given up
//
// So a rank that is lost costs at most the step that was under way and the one before, as long as
// no more are lost at once than there are copies. A rank holds the own share twice and each of its
// copies of others' twice: the state that is whole everywhere, and the one that is on its way.
// Threads: one. Requires: context and training outlive it.
class ShardReplicas {
 public:
  ShardReplicas(Context& context, ShardedTraining training, uint32_t copies);
  ~ShardReplicas();
  ShardReplicas(const ShardReplicas&) = delete;
  ShardReplicas& operator=(const ShardReplicas&) = delete;

  // In a new generation, first: what is kept here. Leaves the connections of the one before.
  std::vector<RecordKey> Records();

  // Then: connects ranks with those that will keep copies for them, beside what comes next. Of all
  // ranks. Params: hosts: each rank's. Requires: until Begin nobody else connects.
  void ConnectBeside(const std::vector<uint32_t>& hosts);

  // Then: gives all ranks the newest state that can be put together, dealt out as the optimizer is
  // now; new ranks have none to add, and go on with the random generators of those whose places
  // they take. A collective. Params: records: of all ranks, by rank. Returns: how far training had
  // come then; none: there is no state that is whole, and none is kept any more.
  // Errors: UNAVAILABLE, "PeerError: …" — a peer is gone; what is kept stays, so try again in the
  // next generation. FAILED_PRECONDITION — ranks have different models or optimizers.
  absl::StatusOr<std::optional<TrainingProgress>> TakeBack(
      const std::vector<std::vector<RecordKey>>& records);

  // Copies the own share, and begins to send it; waits for nobody, but in a generation's first
  // round for the connections. What was kept before stays until the next Commit. Requires: no other
  // one since the last Commit. Errors: UNAVAILABLE as above. UNIMPLEMENTED — the optimizer's state
  // can't be read.
  absl::Status Begin(const TrainingProgress& progress);

  // A collective; nothing when nothing was begun. Errors: UNAVAILABLE as above.
  absl::Status Commit();

 private:
  struct Record {
    RecordKey key;
    torch::Tensor bytes;  // of a tensor file without a checksum: U8[n]
  };
  struct Transfer {
    Record record;
    bool arrives = false;                 // else it leaves
    c10::intrusive_ptr<c10d::Work> work;  // null: it was waited for
  };
  // What of a state is for this rank.
  struct Parts {
    CheckpointTensors optimizer;
    CheckpointTensors parameters;
    CheckpointTensors others;
  };

  RecordKey OwnKey(int64_t step) const;
  absl::StatusOr<torch::Tensor> Pack(const TrainingProgress& progress);
  torch::Tensor TakeMemory(int64_t bytes);
  void GiveBack(torch::Tensor memory);
  // Sends the own record of the round and has others' come, of the sizes that all know. Throws.
  void Exchange();
  absl::Status AwaitTransfers();
  // Takes what has arrived before the generation ended, and leaves the connections.
  void Settle();
  void LeaveConnections();
  void KeepOnly(const RecordKey& state);

  absl::Status Move(const RecoveryPoint& point, uint32_t shard, Parts& parts);
  void Take(const CheckpointTensors& tensors, bool is_whole_share, bool is_first, Parts& parts);
  absl::Status SendUntrained(uint32_t source);
  absl::StatusOr<TrainingProgress> Apply(const Parts& parts, bool has_generators);

  Context& context_;
  const ShardedTraining training_;
  const uint32_t copies_;
  using Links = c10::intrusive_ptr<c10d::Backend>;

  // Until Begin; then links_ are there.
  std::future<absl::StatusOr<Links>> connecting_;
  Links links_;                     // null: nobody to send to
  std::vector<uint32_t> holders_;   // of the own share
  std::vector<uint32_t> kept_for_;  // whose shares are kept here
  // Of each rank's record, as all know them or, in a generation's first round, expect them; 0 =
  // unknown.
  std::vector<int64_t> sizes_;
  std::optional<Record> round_;       // begun, not committed; also one of the records
  std::vector<Transfer> transfers_;   // of that round
  std::vector<Record> records_;       // whole ones
  std::vector<torch::Tensor> spare_;  // memory that records had
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_SHARD_REPLICAS_H_
