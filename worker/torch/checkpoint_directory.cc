#include "worker/torch/checkpoint_directory.h"

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
#include "worker/torch/atomic_file.h"

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

absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> LoadCheckpoint(const std::string& directory,
                                                                 const CheckpointId& id) {
  auto checkpoint = std::make_unique<LoadedCheckpoint>();
  checkpoint->id = id;
  DDPRUN_ASSIGN_OR_RETURN(checkpoint->bytes, ReadWholeFile(PathOf(directory, CheckpointName(id))));
  DDPRUN_ASSIGN_OR_RETURN(checkpoint->file, DecodeTensorFile(checkpoint->bytes));
  return checkpoint;
}

}  // namespace

std::string CheckpointName(const CheckpointId& id) {
  return absl::StrFormat("%sf%06d-g%06d-s%010d%s", kPrefix, id.fence, id.generation, id.step,
                         kSuffix);
}

std::optional<CheckpointId> ParseCheckpointName(const std::string& name) {
  absl::string_view rest = name;
  if (!absl::ConsumePrefix(&rest, kPrefix) || !absl::ConsumeSuffix(&rest, kSuffix)) {
    return std::nullopt;
  }
  const std::vector<absl::string_view> parts = absl::StrSplit(rest, '-');
  CheckpointId id;
  if (parts.size() != 3 || !ParsePart(parts[0], "f", &id.fence) ||
      !ParsePart(parts[1], "g", &id.generation) || !ParsePart(parts[2], "s", &id.step)) {
    return std::nullopt;
  }
  return id;
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

absl::StatusOr<NewestCheckpoint> LoadNewestCheckpoint(const std::string& directory) {
  DDPRUN_ASSIGN_OR_RETURN(const std::vector<CheckpointId> ids, ListCheckpoints(directory));
  NewestCheckpoint newest;
  for (const CheckpointId& id : ids) {
    absl::StatusOr<std::unique_ptr<LoadedCheckpoint>> loaded = LoadCheckpoint(directory, id);
    if (loaded.ok()) {
      newest.loaded = *std::move(loaded);
      break;
    }
    newest.damaged.push_back(absl::DataLossError(absl::StrCat(
        "checkpoint '", PathOf(directory, CheckpointName(id)), "': ", loaded.status().message())));
  }
  return newest;
}

void PruneCheckpoints(const std::string& directory, const CheckpointId& newest, uint32_t keep) {
  const absl::StatusOr<std::vector<std::string>> names = ListDirectory(directory);
  if (!names.ok()) return;
  std::vector<CheckpointId> ours;
  for (const std::string& name : *names) {
    const std::optional<CheckpointId> id = ParseCheckpointName(name);
    if (id.has_value() && *id <= newest) ours.push_back(*id);
    if (absl::StartsWith(name, kPrefix) && absl::EndsWith(name, kTemporarySuffix)) {
      unlink(PathOf(directory, name).c_str());
    }
  }
  std::sort(ours.begin(), ours.end(), std::greater<>());
  for (size_t i = keep; i < ours.size(); ++i) {
    unlink(PathOf(directory, CheckpointName(ours[i])).c_str());
  }
}

}  // namespace ddprun::worker
