#ifndef DDPRUN_LAUNCHER_LOGS_LOG_CALL_H_
#define DDPRUN_LAUNCHER_LOGS_LOG_CALL_H_

#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>

#include "absl/status/status.h"
#include "ddprun/agent/v1/agent.pb.h"
#include "launcher/logs/log_reader.h"

namespace ddprun::launcher {

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

#endif  // DDPRUN_LAUNCHER_LOGS_LOG_CALL_H_
