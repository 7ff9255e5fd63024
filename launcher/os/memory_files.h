#ifndef DDPRUN_LAUNCHER_OS_MEMORY_FILES_H_
#define DDPRUN_LAUNCHER_OS_MEMORY_FILES_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "launcher/core/launch_plan.h"
#include "launcher/os/cgroup.h"

namespace ddprun::launcher {

// Files in memory for checkpoints of this node's workers (docs/ELASTIC.md). They belong to the
// agent: they outlive a worker, and their memory is free when the agent ends, however it ends.
//
// A file's size is sealed, so no worker can take more than it was granted. A worker that needs a
// larger file gets a new, empty one in place of the old one, which is freed. Workers open a file as
// /proc/<agent>/fd/<number>, as they open their progress page (progress_pages.h).
// Threads: one at a time.
class MemoryFiles {
 public:
  struct File {
    std::string path;    // "" = there is none
    uint64_t bytes = 0;  // its size
  };

  // `memory` returns the memory that this process may use.
  explicit MemoryFiles(
      const MemoryCheckpointPlan& plan,
      std::function<std::optional<Memory>()> memory = [] { return OwnMemory(); });

  // Files of one local rank: for each rank whose checkpoints it keeps up to three, the one that is
  // whole, the one that is being written, and one more for ranks that may be a checkpoint apart. It
  // keeps its own, and copies of those of up to 15 ranks of another node.
  static constexpr uint32_t kSlots = 48;

  // The file of a local rank with at least so many bytes; with 0 the one that there is.
  // Errors: INVALID_ARGUMENT: no such slot; RESOURCE_EXHAUSTED: beyond the plan's bound, or more
  // than half of the memory that is available, or too many descriptors.
  absl::StatusOr<File> Keep(uint32_t local_rank, uint32_t slot, uint64_t bytes);

  // The memory that the files hold; nullopt = there is no file.
  std::optional<uint64_t> BytesHeld() const;

 private:
  struct Kept {
    Fd fd;
    uint64_t bytes = 0;
  };

  absl::Status CheckBounds(uint64_t more) const;
  uint64_t BytesGranted() const;

  const MemoryCheckpointPlan plan_;
  const std::function<std::optional<Memory>()> memory_;
  std::map<std::pair<uint32_t, uint32_t>, Kept> files_;  // by local rank and slot
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_MEMORY_FILES_H_
