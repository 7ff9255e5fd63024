#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINTER_IMPLEMENTATION_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINTER_IMPLEMENTATION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/checkpointer.h"
#include "ddprun/exponential_moving_average.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/checkpoint/background_write.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"
#include "worker/torch/checkpoint/checkpoint_directory.h"

namespace ddprun {

// Where what is saved comes from, and what of it is on its way: checkpointer_save.cc; what is
// resumed: checkpointer.cc.
struct Checkpointer::Implementation {
  struct Extra {
    std::string name;
    CheckpointedState& state;
  };

  // A checkpoint on its way. Its write beside training may see the ranks change: it has the place
  // that it was begun in.
  struct Saving {
    worker::CheckpointId id;
    uint64_t number = 0;  // of those that this generation has begun
    uint32_t rank = 0;
    uint32_t world_size = 1;
    bool shards = false;  // each rank writes a file of its own
    std::optional<double> score;
    worker::CheckpointTensors main;
    worker::CheckpointTensors shard;
  };
  struct Pending {
    worker::CheckpointId id;
    bool shards = false;
    bool given_up = false;
  };

  Context& context;
  std::shared_ptr<torch::nn::Module> module;
  torch::optim::Optimizer& optimizer;
  CheckpointerOptions options;
  std::vector<Extra> extras;
  ExponentialMovingAverage* average = nullptr;  // null = none
  uint64_t fence = 1;                           // of what this generation writes
  uint64_t saves = 0;
  std::optional<Pending> pending;  // the same on all ranks
  worker::TensorCopies main_copies;
  worker::TensorCopies shard_copies;

  // Null: the optimizer is none.
  ZeroOptimizer* zero() const { return dynamic_cast<ZeroOptimizer*>(&optimizer); }
  // Whether each rank writes a file of its own.
  bool WritesShards() const;
  // The optimizer's tensors that rank 0 writes; a collective.
  absl::StatusOr<worker::CheckpointTensors> OptimizerState() const;
  // The same of parameters that are shared out.
  absl::StatusOr<worker::CheckpointTensors> SharedOutParameters() const;
  // What this rank writes: rank 0, nothing on others, a collective; and of its own.
  absl::StatusOr<worker::CheckpointTensors> MainTensors(const TrainingProgress& progress) const;
  absl::StatusOr<worker::CheckpointTensors> ShardTensors() const;
  // Without its tensors.
  Saving Begin(const TrainingProgress& progress, std::optional<double> score);
  // Copies what is to be written, and has it written.
  absl::Status SaveBeside(const TrainingProgress& progress, std::optional<double> score);
  absl::Status WriteBeside(const Saving& saving,
                           const c10::intrusive_ptr<c10d::Store>& store) const;
  // All ranks'; a collective. Returns: the shards' checksums.
  absl::StatusOr<std::vector<uint32_t>> WriteShards(Saving& saving) const;
  // Each returns its file's checksum.
  absl::StatusOr<uint32_t> WriteShard(const Saving& saving) const;
  absl::StatusOr<uint32_t> WriteMain(const Saving& saving, std::vector<uint32_t> shards) const;
  absl::StatusOr<uint32_t> Write(const std::function<std::string(uint32_t checksum)>& name,
                                 const worker::CheckpointTensors& tensors,
                                 const worker::Manifest& manifest, uint32_t world_size) const;
  // Removes what needn't stay once `newest` is there: one rank's by itself, or all ranks', a
  // collective.
  void Prune(const worker::CheckpointId& newest) const;
  absl::Status PruneTogether(const worker::CheckpointId& newest) const;
  // Of the last SaveAsync; false: the generation has ended, and it isn't written yet.
  bool AwaitWrite();
  void NotifyOfGivenUp(const worker::CheckpointId& id, const absl::Status& why) const;
  // Adds the shards' tensors. Answers whether there were all.
  absl::StatusOr<bool> AddShards(const worker::LoadedCheckpoint& loaded,
                                 worker::CheckpointTensors& tensors) const;
  // Whether the optimizer has its state in what all ranks read and what is in the own shard.
  bool Suffices(const worker::CheckpointTensors& all, const worker::CheckpointTensors& own) const;
  absl::StatusOr<TrainingProgress> Apply(const worker::CheckpointTensors& tensors) const;
  void NotifyOfNone() const;

  worker::BackgroundWrite write;  // last: it uses the others
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINTER_IMPLEMENTATION_H_
