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

// A training that ZeRO has divided among the ranks.
struct ShardedTraining {
  torch::nn::Module& module;
  ZeroOptimizer& zero;
  std::map<std::string, CheckpointedState*> extras;  // without states that differ by rank
  ExponentialMovingAverage* average = nullptr;       // null = none
};

// Keeps copies of each rank's share, as it was after a step, in the rank's own memory and in that
// of other ranks, on other hosts first. When ranks are lost, the others and new ones put a whole
// state together from the copies: the newest state with all shares. shard_replicas.cc explains how.
//
//   Begin(n)   after step n: copies the own share and begins to send it, beside training
//   Commit()   before the optimizer changes anything in step n + 1: waits until all copies have
//              arrived, and drops those of the state before
//
// So the loss of a rank costs at most the step that was under way and the one before, if no more
// ranks are lost at once than there are copies. A rank holds its own share twice, and each copy of
// another share twice: of the committed state, and of the one that is being sent.
// Threads: one. Requires: context and training outlive it.
class ShardReplicas {
 public:
  ShardReplicas(Context& context, ShardedTraining training, uint32_t copies);
  ~ShardReplicas();
  ShardReplicas(const ShardReplicas&) = delete;
  ShardReplicas& operator=(const ShardReplicas&) = delete;

  // Call it first in a new generation: returns the records that this rank keeps, and closes the
  // connections of the generation before.
  std::vector<RecordKey> Records();

  // Call it second, on all ranks: begins to connect ranks with those that will keep copies for
  // them. Params: hosts: by rank. Requires: until Begin this process makes no other connections.
  void ConnectBeside(const std::vector<uint32_t>& hosts);

  // Call it third: restores the newest state that can be put together, on all ranks, divided as the
  // optimizer is now. New ranks go on with the random generators of the ranks that they replace. A
  // collective. Params: records: of all ranks, by rank. Returns: the progress of that state;
  // nullopt: no state is whole, and no records are kept any more.
  // Errors: UNAVAILABLE, "PeerError: …" — a peer is gone; the records stay, so try again in the
  // next generation. FAILED_PRECONDITION — ranks have different models or optimizers.
  absl::StatusOr<std::optional<TrainingProgress>> TakeBack(
      const std::vector<std::vector<RecordKey>>& records);

  // Copies the own share, and begins to send it. Doesn't wait, except for the connections in a
  // generation's first round. Older records stay until the next Commit. Requires: Commit was called
  // since the last Begin. Errors: UNAVAILABLE as above. UNIMPLEMENTED — the optimizer's state can't
  // be read.
  absl::Status Begin(const TrainingProgress& progress);

  // A collective; does nothing if no round was begun. Errors: UNAVAILABLE as above.
  absl::Status Commit();

 private:
  struct Record {
    RecordKey key;
    torch::Tensor bytes;  // of a tensor file without a checksum: U8[n]
  };
  struct Transfer {
    Record record;
    bool arrives = false;                 // false: it is sent
    c10::intrusive_ptr<c10d::Work> work;  // null: already waited for
  };
  // The tensors of a state that are for this rank.
  struct Parts {
    CheckpointTensors optimizer;
    CheckpointTensors parameters;
    CheckpointTensors others;
  };

  RecordKey OwnKey(int64_t step) const;
  absl::StatusOr<torch::Tensor> Pack(const TrainingProgress& progress);
  torch::Tensor TakeMemory(int64_t bytes);
  void GiveBack(torch::Tensor memory);
  // Begins to send the own record of the round and to receive others', with sizes_. Throws.
  void Exchange();
  absl::Status AwaitTransfers();
  // Takes the records that arrived before the generation ended, and closes the connections.
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

  // Valid until Begin, which takes links_ from it.
  std::future<absl::StatusOr<Links>> connecting_;
  Links links_;                     // null: no other rank, or no copies
  std::vector<uint32_t> holders_;   // the ranks that keep the own share
  std::vector<uint32_t> kept_for_;  // the ranks whose shares are kept here
  // By rank, the size of its record, which all ranks know or, in a generation's first round,
  // expect; 0 = unknown.
  std::vector<int64_t> sizes_;
  std::optional<Record> round_;       // begun, not committed; also one of records_
  std::vector<Transfer> transfers_;   // of that round
  std::vector<Record> records_;       // complete ones
  std::vector<torch::Tensor> spare_;  // memory of dropped records, for new ones
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_SHARD_REPLICAS_H_
