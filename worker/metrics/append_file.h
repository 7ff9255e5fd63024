#ifndef DDPRUN_WORKER_METRICS_APPEND_FILE_H_
#define DDPRUN_WORKER_METRICS_APPEND_FILE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace ddprun::worker {

// A file that only grows, by whole records. Nothing is buffered in this process, so what was
// appended survives the process. Threads: one, but Sync from any.
class AppendFile {
 public:
  AppendFile() = default;
  // Errors: the errno of open(2), with the path.
  static absl::StatusOr<AppendFile> Open(const std::string& path);

  // Appends all of `bytes`, or, if the disk is full, nothing of them.
  // Errors: the errno of write(2), with the path.
  absl::Status Append(absl::string_view bytes);

  // Waits until what was appended survives a crash of the machine: fdatasync(2).
  absl::Status Sync() const;

  const std::string& path() const { return path_; }

 private:
  AppendFile(Fd fd, std::string path) : fd_(std::move(fd)), path_(std::move(path)) {}

  Fd fd_;
  std::string path_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_APPEND_FILE_H_
