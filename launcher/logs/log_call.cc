#include "launcher/logs/log_call.h"

#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "base/thread.h"
#include "rendezvous/wire/grpc_status.h"

namespace ddprun::launcher {

LogCall* LogCall::Start(std::shared_ptr<LogCatalog> catalog, const LogRequest& request,
                        std::atomic<size_t>* open) {
  const std::shared_ptr<LogCall> stream(
      new LogCall(std::make_unique<LogReader>(std::move(catalog), request), open));
  stream->self_ = stream;
  absl::StatusOr<std::thread> thread = StartThread("a reader of logs", [stream] {
    const absl::Status status =
        stream->reader_->Run([&stream](const LogFile& file, std::string bytes) {
          return stream->Send(file, std::move(bytes));
        });
    stream->Finish(rendezvous::ToGrpcStatus(status));
  });
  if (thread.ok()) {
    thread->detach();
  } else {
    stream->Finish(rendezvous::ToGrpcStatus(thread.status()));
  }
  return stream.get();
}

LogCall* LogCall::Refuse(const absl::Status& status) {
  const std::shared_ptr<LogCall> stream(new LogCall(nullptr, nullptr));
  stream->self_ = stream;
  stream->Finish(rendezvous::ToGrpcStatus(status));
  return stream.get();
}

bool LogCall::Send(const LogFile& file, std::string bytes) {
  std::unique_lock lock(mutex_);
  piece_.set_generation(file.generation);
  piece_.set_restart_count(file.restart_count);
  piece_.set_rank(file.rank);
  piece_.set_local_rank(file.local_rank);
  piece_.set_is_stderr(file.is_stderr);
  piece_.set_data(std::move(bytes));
  writing_ = true;
  StartWrite(&piece_);
  written_.wait(lock, [this] { return !writing_; });
  return !broken_;
}

void LogCall::OnWriteDone(bool ok) {
  const std::lock_guard lock(mutex_);
  writing_ = false;
  broken_ = broken_ || !ok;
  written_.notify_all();
}

void LogCall::OnCancel() {
  if (reader_ != nullptr) reader_->Stop();
}

void LogCall::OnDone() {
  if (open_ != nullptr) --*open_;
  const auto released = std::move(self_);  // may be the last reference
}

}  // namespace ddprun::launcher
