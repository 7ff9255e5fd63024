#ifndef DDPRUN_LAUNCHER_LOGS_LOG_READER_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_READER_H_

#include <grpcpp/support/server_callback.h>
#include <sys/types.h>

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/fd.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "launcher/logs/log_catalog.h"

namespace ddprun::launcher {

// A request for a node's logs (proto ReadLogsRequest).
struct LogRequest {
  std::optional<uint32_t> rank;        // only this rank
  std::optional<uint64_t> tail_lines;  // only the last lines of each file of the newest generation
  std::optional<Instant> since;        // only lines that were written later, and a few earlier ones
  bool follow = false;
};

// Reads the log files of a catalog from beginning to end, one generation after the other, and
// follows them by inotify(7). Every byte is sent once, in its file's order. Reads block, so each
// reader has a thread of its own: a slow disk or a slow client delays nothing else.
//
// The files are read, not the bytes that pass through the agent: so a slow reader loses nothing and
// delays no worker, and earlier output is there. Each agent serves its own node's files: through
// the service, the output of a thousand nodes would take one node's network.
class LogReader {
 public:
  // Takes a piece of at most 32 KiB; returns false to stop.
  using Sink = std::function<bool(const LogFile& file, std::string bytes)>;

  LogReader(std::shared_ptr<LogCatalog> catalog, const LogRequest& request);
  LogReader(const LogReader&) = delete;
  LogReader& operator=(const LogReader&) = delete;

  // Returns OK at the end of the files or, when following, when the catalog is closed; CANCELLED
  // after Stop() or if the sink returned false. Errors: a file can't be opened or watched; the text
  // names it. To be called once.
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
  bool first_ = true;            // before the first TakeNew()
  bool tails_ = true;            // the first generation is being opened
  std::deque<LogFile> waiting_;  // files of generations that are read later
  std::vector<OpenFile> open_;   // files of the newest generation that is read, and the one before
};

// One ReadLogs call: a thread reads, and waits until gRPC has taken each piece. A client that
// doesn't read costs one piece of memory and one thread, and delays nothing else. Life: holds
// itself until gRPC and its thread are done with it. Threads: gRPC's and its own.
class LogCall final : public grpc::ServerWriteReactor<agent::v1::LogPiece>,
                      public std::enable_shared_from_this<LogCall> {
 public:
  // `open` counts the streams that are open, and outlives them.
  static LogCall* Start(std::shared_ptr<LogCatalog> catalog, const LogRequest& request,
                        std::atomic<size_t>* open);
  // A call that ends at once.
  static LogCall* Refuse(const absl::Status& status);

 private:
  LogCall(std::unique_ptr<LogReader> reader, std::atomic<size_t>* open)
      : reader_(std::move(reader)), open_(open) {}

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;
  bool Send(const LogFile& file, std::string bytes);

  const std::unique_ptr<LogReader> reader_;  // null: refused
  std::atomic<size_t>* const open_;          // null: not counted
  std::shared_ptr<LogCall> self_;            // until OnDone

  std::mutex mutex_;
  std::condition_variable written_;
  bool writing_ = false;
  bool broken_ = false;
  agent::v1::LogPiece piece_;  // gRPC's while writing_
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_READER_H_
