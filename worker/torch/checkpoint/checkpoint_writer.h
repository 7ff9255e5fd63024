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

// Writes a training's checkpoints, beside it or not, and removes those that needn't stay.
//
// What isn't said here is as Checkpointer says. Threads: one; it has another that writes.
// Requires: context and training outlive it; keep >= 1.
class CheckpointWriter {
 public:
  CheckpointWriter(Context& context, const CheckpointedTraining& training, std::string directory,
                   uint32_t keep, std::map<std::string, std::string> notes)
      : context_(context),
        training_(training),
        directory_(std::move(directory)),
        keep_(keep),
        notes_(std::move(notes)) {}

  // saves: it is a part of a save, whose own errors come later.
  absl::Status Claim(bool saves = false);
  absl::Status Save(const TrainingProgress& progress, std::optional<double> score);
  absl::Status SaveAsync(const TrainingProgress& progress, std::optional<double> score);
  absl::Status Wait();
  absl::StatusOr<bool> IsBest(double score);

  // What this generation writes from now on is newer than all with this fence.
  void BeginAfter(uint64_t fence) { fence_ = fence + 1; }
  void LeaveGeneration();
  uint64_t fence() const { return fence_; }
  void GoOnAfter(uint64_t fence) { fence_ = fence; }

 private:
  // A checkpoint on its way. Its write beside training may see the ranks change: it has the place
  // that it was begun in.
  struct Saving {
    CheckpointId id;
    uint64_t number = 0;  // of those that this generation has begun
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

  // Without its tensors.
  Saving Begin(const TrainingProgress& progress, std::optional<double> score);
  // Ends the last SaveAsync. Returns it, if all ranks have to agree on what it makes superfluous.
  absl::StatusOr<std::optional<CheckpointId>> Settle();
  // Copies what is to be written, and has it written, `prune` before that.
  absl::Status SaveBeside(const TrainingProgress& progress, std::optional<double> score,
                          std::optional<PrunePlan> prune);
  absl::Status WriteBeside(const Saving& saving, const c10::intrusive_ptr<c10d::Store>& store);
  // Why what this rank has of it isn't to be written; "" = it is.
  std::string WhyWithheld(const Saving& saving) const;
  // Whether that is so on any rank; the lowest such one says it, unless it has. A collective.
  absl::StatusOr<bool> IsWithheldAnywhere(const std::string& own, bool is_said) const;
  absl::Status SaveWithShards(Saving& saving) const;
  // All ranks'; a collective. Returns: the shards' checksums.
  absl::StatusOr<std::vector<uint32_t>> WriteShards(const Saving& saving) const;
  // Those that write a file return its checksum.
  absl::StatusOr<uint32_t> WriteShard(const Saving& saving) const;
  absl::Status WriteMain(const Saving& saving, std::vector<uint32_t> shards) const;
  absl::StatusOr<uint32_t> Write(const std::function<std::string(uint32_t checksum)>& name,
                                 const CheckpointTensors& tensors, uint32_t world_size,
                                 std::map<std::string, std::string> metadata) const;
  // Removes what needn't stay once `newest` is there: one rank's by itself, or all ranks', a
  // collective after which it is gone everywhere.
  void PruneAlone(const CheckpointId& newest) const;
  absl::Status PruneTogether(const CheckpointId& newest) const;
  // What of it this rank has to remove, if any; a collective.
  absl::StatusOr<std::optional<PrunePlan>> PlanTogether(const CheckpointId& newest) const;
  // Of the last SaveAsync; false: the generation has ended, and it isn't written yet.
  bool AwaitWrite();

  Context& context_;
  const CheckpointedTraining& training_;
  const std::string directory_;
  const uint32_t keep_;
  const std::map<std::string, std::string> notes_;
  // The generation of the last Claim: it is a collective, of new ranks as of those that live on.
  std::optional<uint64_t> claimed_in_;
  WriterLock lock_;     // rank 0's
  uint64_t fence_ = 1;  // of what this generation writes
  uint64_t saves_ = 0;
  std::optional<Pending> pending_;  // the same on all ranks
  std::string withheld_;            // why the last SaveAsync was, on this rank; the thread's
  std::string shard_;               // the file that the last SaveAsync has written; the thread's
  TensorCopies main_copies_;
  TensorCopies shard_copies_;
  BackgroundWrite write_;  // last: it uses the others
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_WRITER_H_
