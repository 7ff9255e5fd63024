#include "launcher/os/memory_files.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::launcher {
namespace {

constexpr double kPercentDefault = 25;
// A new file takes at most this part of the memory that is available: the training grows, too.
constexpr uint64_t kAvailablePart = 2;

absl::StatusOr<Fd> MakeFile(uint64_t bytes) {
  Fd fd(memfd_create("ddprun-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd.valid()) return ErrnoStatus(errno, "memfd_create for a checkpoint in memory");
  if (ftruncate(fd.get(), static_cast<off_t>(bytes)) != 0 ||
      fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
    return ErrnoStatus(errno, "size of a checkpoint in memory");
  }
  return fd;
}

}  // namespace

MemoryFiles::MemoryFiles(const MemoryCheckpointPlan& plan,
                         std::function<std::optional<Memory>()> memory)
    : plan_(plan), memory_(std::move(memory)) {}

absl::StatusOr<MemoryFiles::File> MemoryFiles::Keep(uint32_t local_rank, uint32_t slot,
                                                    uint64_t bytes) {
  if (slot >= kSlots) {
    return absl::InvalidArgumentError(
        absl::StrCat("memory for checkpoints: there is no slot ", slot, ", a worker has ", kSlots));
  }
  const std::pair<uint32_t, uint32_t> key(local_rank, slot);
  const auto found = files_.find(key);
  const uint64_t size = found == files_.end() ? 0 : found->second.bytes;
  if (bytes > size) {
    DDPRUN_RETURN_IF_ERROR(CheckBounds(bytes - size));
    DDPRUN_ASSIGN_OR_RETURN(Fd fd, MakeFile(bytes));
    files_[key] = Kept{.fd = std::move(fd), .bytes = bytes};
  } else if (size == 0) {
    return File{};
  }
  const Kept& kept = files_.at(key);
  return File{.path = absl::StrCat("/proc/", getpid(), "/fd/", kept.fd.get()), .bytes = kept.bytes};
}

absl::Status MemoryFiles::CheckBounds(uint64_t more) const {
  const std::optional<Memory> memory = memory_();
  uint64_t most = plan_.bytes.value_or(0);
  if (!plan_.bytes.has_value() && memory.has_value()) {
    most = static_cast<uint64_t>(static_cast<double>(memory->total) / 100 *
                                 plan_.percent.value_or(kPercentDefault));
  }
  const uint64_t granted = BytesGranted();
  if (granted > most || more > most - granted) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "memory for checkpoints: this node's workers have ", BytesText(granted), " and ask for ",
        BytesText(more), " more; --memory_checkpoints allows ", BytesText(most)));
  }
  if (memory.has_value() && more > memory->available / kAvailablePart) {
    return absl::ResourceExhaustedError(
        absl::StrCat("memory for checkpoints: a worker asks for ", BytesText(more), ", of the ",
                     BytesText(memory->available), " that are available at most half is given"));
  }
  return absl::OkStatus();
}

uint64_t MemoryFiles::BytesGranted() const {
  uint64_t granted = 0;
  for (const auto& [key, kept] : files_) granted += kept.bytes;
  return granted;
}

std::optional<uint64_t> MemoryFiles::BytesHeld() const {
  if (files_.empty()) return std::nullopt;
  constexpr uint64_t kBlockBytes = 512;  // stat(2)
  uint64_t held = 0;
  for (const auto& [key, kept] : files_) {
    struct stat file = {};
    if (fstat(kept.fd.get(), &file) == 0) {
      held += static_cast<uint64_t>(file.st_blocks) * kBlockBytes;
    }
  }
  return held;
}

}  // namespace ddprun::launcher
