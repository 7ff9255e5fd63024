#ifndef DDPRUN_LAUNCHER_LOGS_LOG_CATALOG_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_CATALOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"
#include "base/instant.h"
#include "launcher/logs/core/log_times.h"

namespace ddprun::launcher {

// The folders of one agent's logs: <log dir>/<run id>_<random8>/attempt_<restart count>/<local
// rank>, torchrun's layout (docs/LOGS.md). Made when they are needed, with the mode that the umask
// leaves. Files of older attempts are never touched.
// Threads: one.
class LogFolders {
 public:
  // `log_dir`: --log_dir. "" = a temporary one, torchelastic_<random8> in the first of
  // TemporaryFolders() that can be written.
  LogFolders(const std::string& log_dir, const std::string& run_id);
  // Removes a temporary directory if no file is in it.
  ~LogFolders();
  LogFolders(const LogFolders&) = delete;
  LogFolders& operator=(const LogFolders&) = delete;

  // Makes the folder for a generation. Errors: the folder can't be made; the text names it.
  absl::StatusOr<std::string> MakeAttempt(uint32_t restart_count, uint64_t generation);

  // The log directory, absolute: a worker that changes its directory still finds its files.
  const std::string& root() const { return root_; }
  // This job's folder in it.
  const std::string& folder() const { return run_; }
  bool temporary() const { return temporary_; }

 private:
  std::string root_;
  bool temporary_;
  std::string run_;
};

// The sizes of one file over time: one thread notes them, readers query them. Threads: any.
class LogHistory {
 public:
  void Note(Instant now, uint64_t size) {
    const std::lock_guard lock(mutex_);
    times_.Note(now, size);
  }
  void Thin(Instant now) {
    const std::lock_guard lock(mutex_);
    times_.Thin(now);
  }
  uint64_t SizeBefore(Instant at) const {
    const std::lock_guard lock(mutex_);
    return times_.SizeBefore(at);
  }

 private:
  mutable std::mutex mutex_;
  LogTimes times_;
};

// The file with the output of one worker's stream.
struct LogFile {
  uint64_t generation = 0;
  uint32_t restart_count = 0;
  uint32_t rank = 0;  // global
  uint32_t local_rank = 0;
  bool is_stderr = false;
  std::string path;
  std::shared_ptr<LogHistory> history = std::make_shared<LogHistory>();
};

// The log files of one node's workers, in the order of their generations. The loop adds files at
// each start; readers use threads of their own. Threads: any.
class LogCatalog {
 public:
  // How many files are known; the oldest are dropped.
  static constexpr size_t kFilesMax = 1U << 16;

  LogCatalog() = default;
  LogCatalog(const LogCatalog&) = delete;
  LogCatalog& operator=(const LogCatalog&) = delete;

  // Adds the files of one start of the workers. The files exist, and grow.
  void Add(const std::vector<LogFile>& files);
  // The agent ends: no file grows any more.
  void Close();
  bool closed() const;

  // LogTimes::Thin() of all files.
  void ThinHistories(Instant now) const;

  // The files that were added after the first `*seen`; adds their number to `*seen`.
  std::vector<LogFile> TakeNew(uint64_t* seen) const;
  // An eventfd(2) that is written to after each Add() and at Close(), while the caller holds it.
  std::shared_ptr<const Fd> Subscribe();

 private:
  void Wake();

  mutable std::mutex mutex_;
  std::deque<LogFile> files_;
  uint64_t dropped_ = 0;
  bool closed_ = false;
  std::vector<std::weak_ptr<const Fd>> subscribers_;
};

// Notes the sizes of the workers' log files as they grow, at most once a second, until the catalog
// is closed. The sizes show when a line was written, because the files have no times
// (core/log_times.h). Runs on a detached thread, because a disk may hang. Errors: the thread can't
// be started. Threads: any.
absl::Status StartLogSampler(std::shared_ptr<LogCatalog> catalog);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_CATALOG_H_
