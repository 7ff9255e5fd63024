#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_FILE_CALLS_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_FILE_CALLS_H_

#include <string>

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

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_FILE_CALLS_H_
