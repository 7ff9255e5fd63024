#ifndef DDPRUN_LAUNCHER_LOGS_LOG_READER_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_READER_H_

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/fd.h"
#include "launcher/logs/log_catalog.h"

namespace ddprun::launcher {

// What is wanted of a node's logs (proto ReadLogsRequest).
struct LogRequest {
  std::optional<uint32_t> rank;        // only this one
  std::optional<uint64_t> tail_lines;  // only these of each file of the newest generation
  std::optional<Instant> since;        // only lines that were written later, and some before
  bool follow = false;
};

// Reads the log files of a catalog from beginning to end, one generation after the other, and
// follows them by inotify(7). Every byte comes once and in its file's order. Blocks in reads, so it
// has a thread of its own: a slow disk or a slow taker holds up nobody else.
//
// The files are read, not what passes through the agent, so a slow reader loses nothing and holds
// up no worker, and what was written before is there. Each agent serves its own node's files:
// through the service, the output of a thousand nodes would take one node's network.
class LogReader {
 public:
  // Takes a piece of at most 32 KiB; false = enough.
  using Sink = std::function<bool(const LogFile& file, std::string bytes)>;

  LogReader(std::shared_ptr<LogCatalog> catalog, const LogRequest& request);
  LogReader(const LogReader&) = delete;
  LogReader& operator=(const LogReader&) = delete;

  // Returns OK at the end of what is there or, following, when the catalog was closed; CANCELLED
  // when the sink or Stop() said so. Errors: a file can't be opened or watched; names it. Requires:
  // called once.
  absl::Status Run(const Sink& sink);
  // Threads: any.
  void Stop();

 private:
  struct OpenFile {
    LogFile file;
    Fd fd;
  };

  void TakeNew();
  absl::Status OpenNext();
  absl::Status Open(const LogFile& file);
  off_t StartOf(const OpenFile& file) const;
  absl::Status ReadOnce(const Sink& sink, OpenFile* file, bool* any);
  void Wait() const;

  const std::shared_ptr<LogCatalog> catalog_;
  const LogRequest request_;
  const std::shared_ptr<const Fd> wake_;
  const Fd inotify_;
  std::atomic<bool> stopped_ = false;
  uint64_t seen_ = 0;            // files of the catalog
  bool first_ = true;            // nothing was taken yet
  bool tails_ = true;            // the generation that is opened is the first
  std::deque<LogFile> waiting_;  // for the generation before to be read
  std::vector<OpenFile> open_;   // of the newest generation that is read, and the one before
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_READER_H_
