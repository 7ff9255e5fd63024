#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_ATOMIC_FILE_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_ATOMIC_FILE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace ddprun::worker {

// All calls by which checkpoints change the disk: the kernel's, or those of a test that records
// them and tries a crash between any two (crash_points_test.cc).
// Errors: the errno's code, with the call and the path. Threads: any.
class FileCalls {
 public:
  virtual ~FileCalls() = default;

  // mkdir(2). Errors: ALREADY_EXISTS.
  virtual absl::Status MakeDirectory(const std::string& path);
  // open(2) of an empty file to write to.
  virtual absl::StatusOr<Fd> Create(const std::string& path);
  virtual absl::Status Write(const Fd& file, const std::string& path, absl::string_view bytes);
  // fsync(2): the file's bytes survive a crash of the machine, not its name.
  virtual absl::Status SyncFile(const Fd& file, const std::string& path);
  // rename(2): at any moment the name means the file before or the new one.
  virtual absl::Status Rename(const std::string& from, const std::string& to);
  // fsync(2) of a directory: the names in it survive a crash, as they are now.
  virtual absl::Status SyncDirectory(const std::string& path);
  // unlink(2).
  virtual absl::Status Remove(const std::string& path);
};

// The calls in use: the kernel's, unless a test has replaced them.
FileCalls& CurrentFileCalls();
// For tests, while nothing is written. `calls`: null = the kernel's; must outlive their use.
void UseFileCalls(FileCalls* calls);

// The suffix of a file that is still being written: "<path>.<pid>.tmp".
inline constexpr const char* kTemporarySuffix = ".tmp";

// Writes the pieces, one after the other, to a new file that then replaces `path`. A reader, also
// one after a crash of the machine, finds the old file or the whole new one (fsync(2) of the file,
// rename(2), fsync of the directory). A failed write leaves nothing behind.
// Errors: the errno's code, with the call and the path.
absl::Status WriteFileAtomically(const std::string& path,
                                 const std::vector<absl::string_view>& pieces);

// Creates the directory and its parents, so that they survive a crash; existing ones are fine.
absl::Status MakeDirectories(const std::string& path);

// Names in a directory, sorted, without "." and "..". Errors: NOT_FOUND — no such directory.
absl::StatusOr<std::vector<std::string>> ListDirectory(const std::string& path);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_ATOMIC_FILE_H_
