#include "worker/torch/checkpoint/checkpoint_directory.h"

#include <unistd.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/atomic_file.h"
#include "worker/torch/checkpoint/mapped_file.h"

namespace ddprun::worker {
namespace {

constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kSuffix = ".safetensors";

std::string PathOf(const std::string& directory, const std::string& name) {
  return absl::StrCat(directory, "/", name);
}

bool ParsePart(absl::string_view part, absl::string_view letter, uint64_t* number) {
  return absl::ConsumePrefix(&part, letter) && absl::SimpleAtoi(part, number);
}

// "f000001-g000003-s0000000120".
std::string IdText(const CheckpointId& id) {
  return absl::StrFormat("f%06d-g%06d-s%010d", id.fence, id.generation, id.step);
}

// Of a checkpoint's name, or a shard's.
std::optional<CheckpointId> IdOfAnyName(absl::string_view name) {
  if (!absl::ConsumePrefix(&name, kPrefix)) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(name.substr(0, name.find('.')), '-');
  CheckpointId id;
  if (parts.size() < 3 || !ParsePart(parts[0], "f", &id.fence) ||
      !ParsePart(parts[1], "g", &id.generation) || !ParsePart(parts[2], "s", &id.step)) {
    return std::nullopt;
  }
  return id;
}

// Without a look at the tensors: the metadata of a file that is as long as it should be.
absl::StatusOr<TensorFile> ReadHeaderOf(const std::string& path) {
  DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> mapped, MappedFile::Open(path));
  DDPRUN_ASSIGN_OR_RETURN(TensorFile file,
                          DecodeTensorFile(mapped->bytes(), TensorFileCheck::kLength));
  file.tensors.clear();  // they point into the mapping
  return file;
}

}  // namespace

absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> LoadCheckpointFile(const std::string& directory,
                                                                     const std::string& name) {
  auto checkpoint = std::make_unique<LoadedCheckpoint>();
  checkpoint->id = IdOfAnyName(name).value_or(CheckpointId{});
  DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> mapped,
                          MappedFile::Open(PathOf(directory, name)));
  checkpoint->owner = mapped;
  checkpoint->bytes = mapped->bytes();
  DDPRUN_ASSIGN_OR_RETURN(checkpoint->file, DecodeTensorFile(checkpoint->bytes));
  return checkpoint;
}

std::string CheckpointName(const CheckpointId& id) {
  return absl::StrCat(kPrefix, IdText(id), kSuffix);
}

std::string ShardName(const CheckpointId& id, uint32_t shard, uint32_t shards) {
  return absl::StrFormat("%s%s-r%05d-of-%05d%s", kPrefix, IdText(id), shard, shards, kSuffix);
}

std::optional<CheckpointId> ParseCheckpointName(const std::string& name) {
  const bool one_of_a_rank = std::count(name.begin(), name.end(), '-') != 3;
  if (one_of_a_rank || !absl::EndsWith(name, kSuffix)) return std::nullopt;
  return IdOfAnyName(name);
}

absl::StatusOr<std::vector<CheckpointId>> ListCheckpoints(const std::string& directory) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  if (absl::IsNotFound(names.status())) return std::vector<CheckpointId>{};
  DDPRUN_RETURN_IF_ERROR(names.status());
  std::vector<CheckpointId> ids;
  for (const std::string& name : *names) {
    if (const std::optional<CheckpointId> id = ParseCheckpointName(name)) ids.push_back(*id);
  }
  std::sort(ids.begin(), ids.end(), std::greater<>());
  return ids;
}

absl::StatusOr<NewestCheckpoint> LoadNewestCheckpoint(const std::string& directory,
                                                      const std::optional<CheckpointId>& before) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, ListCheckpoints(directory));
  NewestCheckpoint newest;
  for (const CheckpointId& id : ids) {
    if (before.has_value() && id >= *before) continue;
    absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> loaded =
        LoadCheckpointFile(directory, CheckpointName(id));
    if (loaded.ok()) {
      newest.loaded = *std::move(loaded);
      break;
    }
    newest.damaged.push_back(absl::DataLossError(absl::StrCat(
        "checkpoint '", PathOf(directory, CheckpointName(id)), "': ", loaded.status().message())));
  }
  return newest;
}

uint32_t ShardsOf(const TensorFile& file) {
  const auto found = file.metadata.find(kShards);
  uint32_t shards = 0;
  if (found != file.metadata.end() && !absl::SimpleAtoi(found->second, &shards)) return 0;
  return shards;
}

std::vector<FoundCheckpoint> FindCheckpoints(const std::string& directory,
                                             const CheckpointId& newest) {
  std::vector<FoundCheckpoint> found;
  const absl::StatusOr<std::vector<CheckpointId>> ids = ListCheckpoints(directory);
  if (!ids.ok()) return found;
  for (const CheckpointId& id : *ids) {
    if (id > newest) continue;
    const absl::StatusOr<TensorFile> file = ReadHeaderOf(PathOf(directory, CheckpointName(id)));
    if (file.ok()) found.push_back({.id = id, .shards = ShardsOf(*file)});
  }
  return found;
}

bool HasShard(const std::string& directory, const CheckpointId& id, uint32_t shard,
              uint32_t shards) {
  return ReadHeaderOf(PathOf(directory, ShardName(id, shard, shards))).ok();
}

std::optional<CheckpointId> OldestToKeep(const std::vector<CheckpointId>& whole, uint32_t keep) {
  if (keep == 0 || whole.size() < keep) return std::nullopt;
  return whole[keep - 1];
}

void PruneCheckpoints(const std::string& directory, const std::optional<CheckpointId>& oldest) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  if (!names.ok()) return;
  for (const std::string& name : *names) {
    const bool left = absl::StartsWith(name, kPrefix) && absl::EndsWith(name, kTemporarySuffix);
    const std::optional<CheckpointId> id = IdOfAnyName(name);
    const bool old = oldest.has_value() && id.has_value() && *id < *oldest;
    if (left || old) unlink(PathOf(directory, name).c_str());
  }
}

}  // namespace ddprun::worker
