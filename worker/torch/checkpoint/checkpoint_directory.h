#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_DIRECTORY_H_

#include <compare>
#include <cstdint>
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

// "checkpoint-f000001-g000003-s0000000120.safetensors".
std::string CheckpointName(const CheckpointId& id);
// Nothing when it's no name of a checkpoint.
std::optional<CheckpointId> ParseCheckpointName(const std::string& name);

// A rank's part of a checkpoint, beside it: "checkpoint-…-r00001-of-00004.safetensors". The
// checkpoint itself is written when all its shards are there, and says how many they are.
std::string ShardName(const CheckpointId& id, uint32_t shard, uint32_t shards);

// How many shards a checkpoint says that it has; 0 = it is in one file. Metadata "shards".
uint32_t ShardsOf(const TensorFile& file);
inline constexpr const char* kShards = "shards";

// The checkpoints of a directory, newest first; none when there is no such directory.
absl::StatusOr<std::vector<CheckpointId>> ListCheckpoints(const std::string& directory);

// A checkpoint that was read and found whole.
struct LoadedCheckpoint {
  CheckpointId id;
  std::shared_ptr<const void> owner;  // of the bytes
  absl::string_view bytes;            // read-only
  TensorFile file;                    // points into bytes
};

// Reads a checkpoint, or a shard, by its name.
// Errors: those of reading. DATA_LOSS — it is damaged.
absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> LoadCheckpointFile(const std::string& directory,
                                                                     const std::string& name);

struct NewestCheckpoint {
  std::unique_ptr<LoadedCheckpoint> loaded;  // null = there is none, or none is whole
  // DATA_LOSS, with the path, for each newer one that is damaged or can't be read.
  std::vector<absl::Status> damaged;
};

// Reads the newest checkpoint that is whole, of those before `before` if that is given.
// Errors: those of listing the directory.
absl::StatusOr<NewestCheckpoint> LoadNewestCheckpoint(
    const std::string& directory, const std::optional<CheckpointId>& before = std::nullopt);

// A checkpoint whose own file is there, as long as it should be.
struct FoundCheckpoint {
  CheckpointId id;
  uint32_t shards = 0;  // 0 = it is in one file
};

// Those up to `newest`, newest first. Only the files' beginnings are read.
std::vector<FoundCheckpoint> FindCheckpoints(const std::string& directory,
                                             const CheckpointId& newest);
// Whether a shard's file is there, as long as it should be.
bool HasShard(const std::string& directory, const CheckpointId& id, uint32_t shard,
              uint32_t shards);

// The last one to stay so that `keep` of the `whole` ones (newest first) do; nothing while there
// are fewer: what else there is isn't known to be worth less.
std::optional<CheckpointId> OldestToKeep(const std::vector<CheckpointId>& whole, uint32_t keep);

// Deletes all checkpoints older than `oldest`, if one is given, with their shards, and what writers
// that died left. Errors are ignored: room is no reason to stop.
void PruneCheckpoints(const std::string& directory, const std::optional<CheckpointId>& oldest);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_CHECKPOINT_DIRECTORY_H_
