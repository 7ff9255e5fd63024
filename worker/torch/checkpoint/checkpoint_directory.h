#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_DIRECTORY_H_

#include <compare>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "worker/torch/checkpoint/tensor_file.h"

namespace ddprun::worker {

// Identifies a checkpoint and orders those of a directory; the greatest is resumed.
//
// `fence` is one more than that of the checkpoint from which the writer resumed. So a checkpoint
// that a cut-off worker of an older generation still writes never counts as newer than those that
// the others have written since they resumed without it, whatever its step. And a new run of the
// job, in which generations begin at 1 again, continues the order of the old run.
struct CheckpointId {
  uint64_t fence = 0;
  uint64_t generation = 0;
  uint64_t step = 0;

  friend auto operator<=>(const CheckpointId&, const CheckpointId&) = default;
};

// Files with names, not a directory per checkpoint that is renamed as a whole: ranks on different
// disks have no common rename.
//
// "checkpoint-f000001-g000003-s0000000120.safetensors".
std::string CheckpointName(const CheckpointId& id);
// Returns nullopt if `name` isn't a checkpoint's.
std::optional<CheckpointId> ParseCheckpointName(const std::string& name);

// The name of a rank's part of a checkpoint: "checkpoint-…-r00001-of-00004-8f3a1c22.safetensors",
// with its checksum at the end. The checkpoint itself is written after all its shards, and lists
// their checksums: a shard that another write of the same step left isn't mistaken for one.
std::string ShardName(const CheckpointId& id, uint32_t shard, uint32_t shards, uint32_t checksum);

// The description that a checkpoint's file has beside its tensors.
struct Manifest {
  std::vector<uint32_t> shards = {};           // their checksums; empty = all is in one file
  std::optional<double> score = std::nullopt;  // see Checkpointer::Save
};
// Adds "shard_crc32" and "score" to the metadata of a checkpoint.
void PutManifest(const Manifest& manifest, std::map<std::string, std::string>& metadata);
// Errors: DATA_LOSS — PutManifest hasn't written this.
absl::StatusOr<Manifest> ReadManifest(const TensorFile& file);

// The checkpoints of a directory, newest first; none when there is no such directory.
absl::StatusOr<std::vector<CheckpointId>> ListCheckpoints(const std::string& directory);

// A checkpoint that was read and is whole.
struct LoadedCheckpoint {
  CheckpointId id;
  std::shared_ptr<const void> owner;  // of the bytes
  absl::string_view bytes;            // read-only
  TensorFile file;                    // points into bytes
  Manifest manifest;
};

// Reads a checkpoint, or a shard, by its name.
// Errors: those of reading. DATA_LOSS — the file is damaged, or is a shard with another checksum
// than its name has.
absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> LoadCheckpointFile(const std::string& directory,
                                                                     const std::string& name);

struct NewestCheckpoint {
  std::unique_ptr<LoadedCheckpoint> loaded;  // null = there is none, or none is whole
  // DATA_LOSS, with the path, for each newer one that is damaged or can't be read.
  std::vector<absl::Status> damaged;
};

// Which checkpoints of a directory are looked at; by default all.
struct CheckpointRange {
  std::optional<CheckpointId> before = std::nullopt;
  std::optional<CheckpointId> only = std::nullopt;

  bool Has(const CheckpointId& id) const {
    return (!before.has_value() || id < *before) && (!only.has_value() || id == *only);
  }
};

// Reads the newest checkpoint of `range` that is whole, but for its shards.
// Errors: those of listing the directory.
absl::StatusOr<NewestCheckpoint> LoadNewestCheckpoint(const std::string& directory,
                                                      const CheckpointRange& range = {});

// A checkpoint with a main file of the right length.
struct FoundCheckpoint {
  CheckpointId id;
  Manifest manifest = {};
};

// Finds the checkpoints up to `newest` (nullopt = all), newest first. Reads only the files'
// headers.
std::vector<FoundCheckpoint> FindCheckpoints(
    const std::string& directory, const std::optional<CheckpointId>& newest = std::nullopt);
// Whether a shard's file is there and has the right length.
bool HasShard(const std::string& directory, const FoundCheckpoint& checkpoint, uint32_t shard);

// The checkpoint with the highest score, the newest of equal ones; null = none has a score.
const FoundCheckpoint* BestOf(const std::vector<FoundCheckpoint>& checkpoints);

// Which checkpoints stay when `newest` has been written.
struct PrunePlan {
  CheckpointId newest;
  // The oldest checkpoint that stays because it is new; nullopt = all stay, because it isn't known
  // that others are whole.
  std::optional<CheckpointId> oldest = std::nullopt;
  std::optional<CheckpointId> best = std::nullopt;  // stays whatever its age
};
// Plans that of the `whole` checkpoints (newest first) those of the last `keep` steps stay, and the
// best. A step that was saved again after a fault, in another generation, counts once. Requires:
// keep >= 1.
PrunePlan PlanPruning(const CheckpointId& newest, const std::vector<FoundCheckpoint>& whole,
                      uint32_t keep);

// Deletes the other checkpoints with their shards, and files that dead writers left; but no file of
// a newer checkpoint, also of a later generation, which may be being written. Errors are ignored: a
// full disk is no reason to stop here.
void PruneCheckpoints(const std::string& directory, const PrunePlan& plan);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
