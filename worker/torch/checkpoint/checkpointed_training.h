#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINTED_TRAINING_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINTED_TRAINING_H_

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "worker/torch/checkpoint/background_write.h"
#include "worker/torch/checkpoint/checkpoint_contents.h"

namespace ddprun {
class ExponentialMovingAverage;
class ZeroOptimizer;
}  // namespace ddprun

namespace ddprun::worker {

// Collects the tensors that the checkpoints of a training have, and restores them. Knows no files.
// Threads: one. Requires: all arguments outlive it.
class CheckpointedTraining {
 public:
  // Params: sharded: a ZeroOptimizer's state goes into shards; no effect without a ZeroOptimizer.
  CheckpointedTraining(Context& context, std::shared_ptr<torch::nn::Module> module,
                       torch::optim::Optimizer& optimizer, bool sharded);

  // See Checkpointer::Add.
  void Add(std::string name, CheckpointedState& state);
  void Add(ExponentialMovingAverage& average) { average_ = &average; }

  // Whether each rank has a shard of its own.
  bool HasShards() const;
  // The tensors that are the same on all ranks, on rank 0; nothing on others. A collective.
  // Notifies once of a state that isn't the same, though it should be
  // (CheckpointedState::differs_by_rank).
  absl::StatusOr<CheckpointTensors> MainTensors(const TrainingProgress& progress) const;
  // This rank's shard.
  absl::StatusOr<CheckpointTensors> ShardTensors() const;

  // Finds checkpoints of this training that are of no use.
  const FiniteWatch& watch() const { return watch_; }
  void Accept(const CheckpointTensors& tensors) { watch_.Accept(tensors); }

  // Whether the main file and the own shard have all of the optimizer's state.
  bool Suffices(const CheckpointTensors& all, const CheckpointTensors& own) const;
  // Adds to `tensors` copies of what this rank needs of a shard, one of `shards`.
  void TakeOfShard(uint32_t shard, size_t shards, const CheckpointTensors& stored,
                   CheckpointTensors& tensors) const;
  // Restores the training. Errors: FAILED_PRECONDITION — the tensors are another training's.
  absl::StatusOr<TrainingProgress> Apply(const CheckpointTensors& tensors) const;

 private:
  struct Extra {
    std::string name;
    CheckpointedState& state;
  };

  // The tensors of states that should be the same on all ranks, with their values or digests.
  std::vector<std::string> ExtraTexts() const;
  // Names a state that isn't the same on all ranks. A collective. Params: texts: ExtraTexts().
  absl::Status NotifyOfDifference(const std::vector<std::string>& texts) const;

  ZeroOptimizer* zero() const;  // null: the optimizer isn't a ZeroOptimizer
  // The optimizer's tensors that rank 0 writes; a collective.
  absl::StatusOr<CheckpointTensors> OptimizerState() const;
  // The parameters that are shared out, which rank 0 writes; a collective.
  absl::StatusOr<CheckpointTensors> SharedOutParameters() const;
  absl::Status ApplyExtra(const Extra& extra, const CheckpointTensors& tensors) const;
  // Warns of states that were saved, and which the program hasn't added.
  void WarnOfUnusedExtras(const CheckpointTensors& tensors) const;

  Context& context_;
  std::shared_ptr<torch::nn::Module> module_;
  torch::optim::Optimizer& optimizer_;
  const bool sharded_;
  FiniteWatch watch_;
  std::vector<Extra> extras_;
  ExponentialMovingAverage* average_ = nullptr;  // null = none
  mutable bool has_notified_ = false;
  mutable uint64_t saves_ = 0;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINTED_TRAINING_H_
