#ifndef DDPRUN_WORKER_METRICS_APPEND_FILE_H_
#define DDPRUN_WORKER_METRICS_APPEND_FILE_H_

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
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

// Syncs files to the disk once an interval, on a thread of its own, because the disk may be busy
// with a checkpoint for seconds while training goes on.
class DiskSyncer {
 public:
  // Requires: the files outlive it.
  DiskSyncer(std::vector<const AppendFile*> files, absl::Duration interval);
  // Syncs a last time.
  ~DiskSyncer();
  DiskSyncer(const DiskSyncer&) = delete;
  DiskSyncer& operator=(const DiskSyncer&) = delete;

  // Syncs now, in the caller's thread. Threads: any.
  void Sync();

 private:
  void Run(absl::Duration interval);

  const std::vector<const AppendFile*> files_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool told_ = false;   // guarded by mutex_: an error was logged
  bool ended_ = false;  // guarded by mutex_
  std::thread thread_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_METRICS_APPEND_FILE_H_
