#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_WRITER_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_WRITER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/checkpointer.h"
#include "worker/torch/checkpoint/background_write.h"
#include "worker/torch/checkpoint/checkpoint_directory.h"
#include "worker/torch/checkpoint/checkpointed_training.h"
#include "worker/torch/checkpoint/writer_lock.h"

namespace ddprun::worker {

// Writes a training's checkpoints, in a thread beside training or not, and removes old ones. The
// public methods are those of Checkpointer, which documents them. Threads: one, and its own that
// writes. Requires: context and training outlive it; keep >= 1.
class CheckpointWriter {
 public:
  CheckpointWriter(Context& context, const CheckpointedTraining& training, std::string directory,
                   uint32_t keep, std::map<std::string, std::string> notes)
      : context_(context),
        training_(training),
        directory_(std::move(directory)),
        keep_(keep),
        notes_(std::move(notes)) {}

  // saves: called by a save, which reports the errors of writing itself.
  absl::Status Claim(bool saves = false);
  absl::Status Save(const TrainingProgress& progress, std::optional<double> score);
  absl::Status SaveAsync(const TrainingProgress& progress, std::optional<double> score);
  absl::Status Wait();
  absl::StatusOr<bool> IsBest(double score);

  // Makes the checkpoints of this generation newer than all with this fence.
  void BeginAfter(uint64_t fence) { fence_ = fence + 1; }
  void LeaveGeneration();
  uint64_t fence() const { return fence_; }
  void GoOnAfter(uint64_t fence) { fence_ = fence; }

 private:
  // A checkpoint that is being written. Ranks may change during a write beside training, so it
  // keeps the rank and world size with which it was begun.
  struct Saving {
    CheckpointId id;
    uint64_t number = 0;  // counts the checkpoints that this generation has begun
    uint32_t rank = 0;
    uint32_t world_size = 1;
    bool shards = false;  // each rank writes a file of its own
    std::optional<double> score;
    CheckpointTensors main;
    CheckpointTensors shard;
  };
  struct Pending {
    CheckpointId id;
    bool shards = false;
    bool given_up = false;
  };

  // Returns a Saving without its tensors.
  Saving Begin(const TrainingProgress& progress, std::optional<double> score);
  // Ends the last SaveAsync. Returns its checkpoint if all ranks have to agree on which older ones
  // to remove.
  absl::StatusOr<std::optional<CheckpointId>> Settle();
  // Copies the tensors to be written, and starts a write that first removes what `prune` says.
  absl::Status SaveBeside(const TrainingProgress& progress, std::optional<double> score,
                          std::optional<PrunePlan> prune);
  absl::Status WriteBeside(const Saving& saving, const c10::intrusive_ptr<c10d::Store>& store);
  // Why this rank's part of the checkpoint mustn't be written (a NaN); "" = it may be.
  std::string WhyWithheld(const Saving& saving) const;
  // Whether any rank withholds its part; the lowest such rank prints why, unless `is_said`. A
  // collective.
  absl::StatusOr<bool> IsWithheldAnywhere(const std::string& own, bool is_said) const;
  absl::Status SaveWithShards(Saving& saving) const;
  // Writes all ranks' shards; a collective. Returns: the shards' checksums.
  absl::StatusOr<std::vector<uint32_t>> WriteShards(const Saving& saving) const;
  // Writes a file and returns its checksum; so does Write.
  absl::StatusOr<uint32_t> WriteShard(const Saving& saving) const;
  absl::Status WriteMain(const Saving& saving, std::vector<uint32_t> shards) const;
  absl::StatusOr<uint32_t> Write(const std::function<std::string(uint32_t checksum)>& name,
                                 const CheckpointTensors& tensors, uint32_t world_size,
                                 std::map<std::string, std::string> metadata) const;
  // Removes this rank's old checkpoints once `newest` is written, without the other ranks.
  void PruneAlone(const CheckpointId& newest) const;
  // Removes all ranks' old checkpoints; a collective, after which they are gone everywhere.
  absl::Status PruneTogether(const CheckpointId& newest) const;
  // What PruneTogether removes on this rank, if anything; a collective.
  absl::StatusOr<std::optional<PrunePlan>> PlanTogether(const CheckpointId& newest) const;
  // Waits for the last SaveAsync's write. False: the generation ended before it was done.
  bool AwaitWrite();

  Context& context_;
  const CheckpointedTraining& training_;
  const std::string directory_;
  const uint32_t keep_;
  const std::map<std::string, std::string> notes_;
  // The generation of the last Claim, which is a collective of that generation's ranks.
  std::optional<uint64_t> claimed_in_;
  WriterLock lock_;     // rank 0's
  uint64_t fence_ = 1;  // of this generation's checkpoints
  uint64_t saves_ = 0;
  std::optional<Pending> pending_;  // the same on all ranks
  std::string withheld_;            // why this rank withheld the last SaveAsync's; the thread's
  std::string shard_;               // the file that the last SaveAsync has written; the thread's
  TensorCopies main_copies_;
  TensorCopies shard_copies_;
  BackgroundWrite write_;  // last: it uses the others
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_WRITER_H_
