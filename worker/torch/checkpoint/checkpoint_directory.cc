#include "worker/torch/checkpoint/checkpoint_directory.h"

#include <algorithm>
#include <functional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "worker/torch/checkpoint/atomic_file.h"
#include "worker/torch/checkpoint/mapped_file.h"

namespace ddprun::worker {
namespace {

constexpr const char* kPrefix = "checkpoint-";
constexpr const char* kSuffix = ".safetensors";
// Keys of the metadata.
constexpr const char* kShards = "shard_crc32";
constexpr const char* kScore = "score";

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

// The id in the name of a checkpoint or a shard.
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

bool IsShardName(absl::string_view name) { return std::count(name.begin(), name.end(), '-') != 3; }

std::string ChecksumText(uint32_t checksum) { return absl::StrFormat("%08x", checksum); }

bool EndsWithChecksum(absl::string_view name, uint32_t checksum) {
  return absl::EndsWith(name, absl::StrCat("-", ChecksumText(checksum), kSuffix));
}

// The metadata of a file of the right length. Doesn't read the tensors.
absl::StatusOr<TensorFile> ReadHeaderOf(const std::string& path) {
  DDPRUN_ASSIGN_OR_RETURN(const std::shared_ptr<const MappedFile> mapped, MappedFile::Open(path));
  DDPRUN_ASSIGN_OR_RETURN(TensorFile file,
                          DecodeTensorFile(mapped->bytes(), TensorFileCheck::kLength));
  file.tensors.clear();  // the entries point into the mapping
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
  const ReadAhead ahead(checkpoint->bytes);
  DDPRUN_ASSIGN_OR_RETURN(checkpoint->file, DecodeTensorFile(checkpoint->bytes));
  DDPRUN_ASSIGN_OR_RETURN(checkpoint->manifest, ReadManifest(checkpoint->file));
  if (IsShardName(name) && !EndsWithChecksum(name, *checkpoint->file.checksum)) {
    return absl::DataLossError("it isn't the shard that its name says");
  }
  return checkpoint;
}

std::string CheckpointName(const CheckpointId& id) {
  return absl::StrCat(kPrefix, IdText(id), kSuffix);
}

std::string ShardName(const CheckpointId& id, uint32_t shard, uint32_t shards, uint32_t checksum) {
  return absl::StrFormat("%s%s-r%05d-of-%05d-%s%s", kPrefix, IdText(id), shard, shards,
                         ChecksumText(checksum), kSuffix);
}

std::optional<CheckpointId> ParseCheckpointName(const std::string& name) {
  if (IsShardName(name) || !absl::EndsWith(name, kSuffix)) return std::nullopt;
  return IdOfAnyName(name);
}

void PutManifest(const Manifest& manifest, std::map<std::string, std::string>& metadata) {
  if (!manifest.shards.empty()) {
    metadata[kShards] =
        absl::StrJoin(manifest.shards, " ", [](std::string* text, uint32_t checksum) {
          absl::StrAppend(text, ChecksumText(checksum));
        });
  }
  if (manifest.score.has_value()) metadata[kScore] = absl::StrFormat("%.17g", *manifest.score);
}

absl::StatusOr<Manifest> ReadManifest(const TensorFile& file) {
  Manifest manifest;
  const auto shards = file.metadata.find(kShards);
  if (shards != file.metadata.end()) {
    for (const absl::string_view text : absl::StrSplit(shards->second, ' ')) {
      uint32_t checksum = 0;
      if (!absl::SimpleHexAtoi(text, &checksum)) {
        return absl::DataLossError(absl::StrCat("its list of shards has '", text, "'"));
      }
      manifest.shards.push_back(checksum);
    }
  }
  const auto score = file.metadata.find(kScore);
  if (score != file.metadata.end()) {
    manifest.score.emplace();
    if (!absl::SimpleAtod(score->second, &*manifest.score)) {
      return absl::DataLossError(absl::StrCat("its score is '", score->second, "'"));
    }
  }
  return manifest;
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
                                                      const CheckpointRange& range) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, ListCheckpoints(directory));
  NewestCheckpoint newest;
  for (const CheckpointId& id : ids) {
    if (!range.Has(id)) continue;
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

std::vector<FoundCheckpoint> FindCheckpoints(const std::string& directory,
                                             const std::optional<CheckpointId>& newest) {
  std::vector<FoundCheckpoint> found;
  const absl::StatusOr<std::vector<CheckpointId>> ids = ListCheckpoints(directory);
  if (!ids.ok()) return found;
  for (const CheckpointId& id : *ids) {
    if (newest.has_value() && id > *newest) continue;
    const absl::StatusOr<TensorFile> file = ReadHeaderOf(PathOf(directory, CheckpointName(id)));
    if (!file.ok()) continue;
    absl::StatusOr<Manifest> manifest = ReadManifest(*file);
    if (manifest.ok()) found.push_back({.id = id, .manifest = *std::move(manifest)});
  }
  return found;
}

bool HasShard(const std::string& directory, const FoundCheckpoint& checkpoint, uint32_t shard) {
  const std::vector<uint32_t>& shards = checkpoint.manifest.shards;
  const std::string name =
      ShardName(checkpoint.id, shard, static_cast<uint32_t>(shards.size()), shards.at(shard));
  return ReadHeaderOf(PathOf(directory, name)).ok();
}

const FoundCheckpoint* BestOf(const std::vector<FoundCheckpoint>& checkpoints) {
  const FoundCheckpoint* best = nullptr;
  for (const FoundCheckpoint& one : checkpoints) {
    if (!one.manifest.score.has_value()) continue;
    if (best == nullptr || *one.manifest.score > *best->manifest.score) best = &one;
  }
  return best;
}

PrunePlan PlanPruning(const CheckpointId& newest, const std::vector<FoundCheckpoint>& whole,
                      uint32_t keep) {
  PrunePlan plan = {.newest = newest};
  std::set<uint64_t> steps;
  for (const FoundCheckpoint& one : whole) {
    steps.insert(one.id.step);
    if (steps.size() < keep) continue;
    plan.oldest = one.id;
    break;
  }
  if (const FoundCheckpoint* best = BestOf(whole)) plan.best = best->id;
  return plan;
}

void PruneCheckpoints(const std::string& directory, const PrunePlan& plan) {
  absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  if (!names.ok()) return;
  // A checkpoint before its shards, so that after a crash no checkpoint lacks shards.
  std::stable_partition(names->begin(), names->end(),
                        [](const std::string& name) { return !IsShardName(name); });
  for (const std::string& name : *names) {
    const std::optional<CheckpointId> id = IdOfAnyName(name);
    if (!id.has_value() || id == plan.best) continue;
    const bool left = absl::EndsWith(name, kTemporarySuffix) && *id < plan.newest;
    const bool old = plan.oldest.has_value() && *id < *plan.oldest;
    if (left || old) CurrentFileCalls().Remove(PathOf(directory, name)).IgnoreError();
  }
}

}  // namespace ddprun::worker
