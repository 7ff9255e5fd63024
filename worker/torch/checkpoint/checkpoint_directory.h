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

// What orders the checkpoints of a directory; the greatest is resumed.
//
// `fence` is one more than that of the checkpoint the writer resumed from. So what a cut-off worker
// of an older generation still writes never counts as newer than what was written after the others
// had resumed without it, whatever its step; and a new run of the job, whose generations begin at 1
// again, goes on after the old one.
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
// Nothing when it's no name of a checkpoint.
std::optional<CheckpointId> ParseCheckpointName(const std::string& name);

// A rank's part of a checkpoint, beside it: "checkpoint-…-r00001-of-00004-8f3a1c22.safetensors",
// the last being its checksum. The checkpoint itself is written when all its shards are there, and
// lists their checksums: so a shard that another write of the same step left is none of its.
std::string ShardName(const CheckpointId& id, uint32_t shard, uint32_t shards, uint32_t checksum);

// What a checkpoint's file says of itself, beside its tensors.
struct Manifest {
  std::vector<uint32_t> shards = {};           // their checksums; none = it is all in one file
  std::optional<double> score = std::nullopt;  // see Checkpointer::Save
};
// Into the metadata of a checkpoint: "shard_crc32" and "score".
void PutManifest(const Manifest& manifest, std::map<std::string, std::string>& metadata);
// Errors: DATA_LOSS — not what PutManifest writes.
absl::StatusOr<Manifest> ReadManifest(const TensorFile& file);

// The checkpoints of a directory, newest first; none when there is no such directory.
absl::StatusOr<std::vector<CheckpointId>> ListCheckpoints(const std::string& directory);

// A checkpoint that was read and found whole.
struct LoadedCheckpoint {
  CheckpointId id;
  std::shared_ptr<const void> owner;  // of the bytes
  absl::string_view bytes;            // read-only
  TensorFile file;                    // points into bytes
  Manifest manifest;
};

// Reads a checkpoint, or a shard, by its name.
// Errors: those of reading. DATA_LOSS — it is damaged, or a shard of another checksum than its name
// says.
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

// A checkpoint whose own file is there, as long as it should be.
struct FoundCheckpoint {
  CheckpointId id;
  Manifest manifest = {};
};

// Those up to `newest`, newest first; none = all. Only the files' beginnings are read.
std::vector<FoundCheckpoint> FindCheckpoints(
    const std::string& directory, const std::optional<CheckpointId>& newest = std::nullopt);
// Whether a shard's file is there, as long as it should be.
bool HasShard(const std::string& directory, const FoundCheckpoint& checkpoint, uint32_t shard);

// The one of the highest score, the newest of several; null = none has a score.
const FoundCheckpoint* BestOf(const std::vector<FoundCheckpoint>& checkpoints);

// What stays when `newest` has been written.
struct PrunePlan {
  CheckpointId newest;
  // The last of those that stay for their age; nothing = all do: what else there is isn't known to
  // be worth less.
  std::optional<CheckpointId> oldest = std::nullopt;
  std::optional<CheckpointId> best = std::nullopt;  // stays whatever its age
};
// So that those of the last `keep` steps of the `whole` ones (newest first) stay, and their best. A
// step that was saved again after a fault, in another generation, counts once. Requires: keep >= 1.
PrunePlan PlanPruning(const CheckpointId& newest, const std::vector<FoundCheckpoint>& whole,
                      uint32_t keep);

// Deletes the other checkpoints with their shards, and what writers that died left: never what
// belongs to a newer checkpoint, also one of a later generation, which may be being written.
// Errors are ignored: room is no reason to stop.
void PruneCheckpoints(const std::string& directory, const PrunePlan& plan);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
