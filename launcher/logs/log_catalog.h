#ifndef DDPRUN_LAUNCHER_LOGS_LOG_CATALOG_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_CATALOG_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/instant.h"
#include "launcher/logs/core/log_times.h"

namespace ddprun::launcher {

// The sizes of one file, which a thread notes and readers ask for. Threads: any.
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

// A file that has what one worker wrote to one stream.
struct LogFile {
  uint64_t generation = 0;
  uint32_t restart_count = 0;
  uint32_t rank = 0;  // global
  uint32_t local_rank = 0;
  bool is_stderr = false;
  std::string path;
  std::shared_ptr<LogHistory> history = std::make_shared<LogHistory>();
};

// The log files of one node's workers, in the order of their generations: the loop adds those of
// each start, readers on threads of their own look. Threads: any.
class LogCatalog {
 public:
  // The newest so many are known.
  static constexpr size_t kFilesMax = 1U << 16;

  LogCatalog() = default;
  LogCatalog(const LogCatalog&) = delete;
  LogCatalog& operator=(const LogCatalog&) = delete;

  // Of one start of the workers. The files are there, and larger later.
  void Add(const std::vector<LogFile>& files);
  // The agent ends: nothing is written any more.
  void Close();
  bool closed() const;

  // LogTimes::Thin() of all files.
  void ThinHistories(Instant now) const;

  // Those beyond the first `*seen` that were added; counts them in.
  std::vector<LogFile> TakeNew(uint64_t* seen) const;
  // An eventfd(2) that is written to after each Add() and at Close(), as long as somebody holds it.
  std::shared_ptr<const Fd> Subscribe();

 private:
  void Wake();

  mutable std::mutex mutex_;
  std::deque<LogFile> files_;
  uint64_t dropped_ = 0;
  bool closed_ = false;
  std::vector<std::weak_ptr<const Fd>> subscribers_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_CATALOG_H_
