#include "launcher/logs/log_reader.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <string>
#include <thread>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "rendezvous/wire/grpc_settings.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kPieceBytes = 32U << 10;

// The offset of the last `lines` lines of a file. Text after the last newline is a line, too.
off_t StartOfTail(int fd, uint64_t lines) {
  struct stat facts {};
  if (fstat(fd, &facts) != 0 || facts.st_size == 0) return 0;
  if (lines == 0) return facts.st_size;
  std::string bytes(kPieceBytes, '\0');
  off_t end = facts.st_size;
  uint64_t found = 0;
  bool last = true;  // the newline that ends the file begins no line
  while (end > 0) {
    const off_t start = std::max<off_t>(0, end - static_cast<off_t>(kPieceBytes));
    const ssize_t n = pread(fd, bytes.data(), static_cast<size_t>(end - start), start);
    if (n <= 0) return 0;
    for (ssize_t i = n - 1; i >= 0; --i) {
      const bool ends_file = std::exchange(last, false);
      if (bytes[static_cast<size_t>(i)] != '\n' || ends_file) continue;
      if (++found == lines) return start + i + 1;
    }
    end = start;
  }
  return 0;
}

// The beginning of the line with the byte at `offset`.
off_t StartOfLine(int fd, off_t offset) {
  std::string bytes(kPieceBytes, '\0');
  off_t end = offset;
  while (end > 0) {
    const off_t start = std::max<off_t>(0, end - static_cast<off_t>(kPieceBytes));
    const ssize_t n = pread(fd, bytes.data(), static_cast<size_t>(end - start), start);
    if (n <= 0) return offset;
    const size_t newline = bytes.rfind('\n', static_cast<size_t>(n) - 1);
    if (newline != std::string::npos) return start + static_cast<off_t>(newline) + 1;
    end = start;
  }
  return 0;
}

void Discard(int fd) {
  std::array<char, 4096> bytes;
  while (read(fd, bytes.data(), bytes.size()) > 0) {
  }
}

}  // namespace

LogReader::LogReader(std::shared_ptr<LogCatalog> catalog, const LogRequest& request)
    : catalog_(std::move(catalog)),
      request_(request),
      wake_(catalog_->Subscribe()),
      inotify_(inotify_init1(IN_CLOEXEC | IN_NONBLOCK)) {}

void LogReader::Stop() {
  stopped_ = true;
  eventfd_write(wake_->get(), 1);
}

void LogReader::TakeNew() {
  std::vector<LogFile> files = catalog_->TakeNew(&seen_);
  if (std::exchange(first_, false) && request_.tail_lines.has_value() && !files.empty()) {
    const uint64_t newest = files.back().generation;
    std::erase_if(files, [newest](const LogFile& file) { return file.generation != newest; });
  }
  for (LogFile& file : files) {
    if (request_.rank.value_or(file.rank) == file.rank) waiting_.push_back(std::move(file));
  }
}

// The files of the next generation. Those of the one before stay: what passes through the agent may
// be written a little later.
absl::Status LogReader::OpenNext() {
  const uint64_t next = waiting_.front().generation;
  const uint64_t before = open_.empty() ? next : open_.back().file.generation;
  std::erase_if(open_, [before](const OpenFile& file) { return file.file.generation < before; });
  while (!waiting_.empty() && waiting_.front().generation == next) {
    DDPRUN_RETURN_IF_ERROR(Open(waiting_.front()));
    waiting_.pop_front();
  }
  tails_ = false;
  return absl::OkStatus();
}

absl::Status LogReader::Open(const LogFile& file) {
  // A kept worker goes on in its file; each byte of it is sent once.
  const auto same = std::find_if(open_.begin(), open_.end(), [&](const OpenFile& opened) {
    return opened.file.path == file.path;
  });
  if (same != open_.end()) {
    same->file = file;
    return absl::OkStatus();
  }
  OpenFile opened{.file = file, .fd = Fd(open(file.path.c_str(), O_RDONLY | O_CLOEXEC))};
  if (!opened.fd.valid()) return ErrnoStatus(errno, absl::StrCat("open '", file.path, "'"));
  if (request_.follow && inotify_add_watch(inotify_.get(), file.path.c_str(), IN_MODIFY) < 0) {
    return ErrnoStatus(errno,
                       absl::StrCat("watch '", file.path, "' (fs.inotify.max_user_watches?)"));
  }
  lseek(opened.fd.get(), StartOf(opened), SEEK_SET);
  open_.push_back(std::move(opened));
  return absl::OkStatus();
}

off_t LogReader::StartOf(const OpenFile& file) const {
  off_t start = 0;
  if (request_.tail_lines.has_value() && tails_) {
    start = StartOfTail(file.fd.get(), *request_.tail_lines);
  }
  if (!request_.since.has_value()) return start;
  const auto before = static_cast<off_t>(file.file.history->SizeBefore(*request_.since));
  return std::max(start, StartOfLine(file.fd.get(), before));
}

absl::Status LogReader::ReadOnce(const Sink& sink, OpenFile* file, bool* any) {
  std::string bytes(kPieceBytes, '\0');
  const ssize_t n = read(file->fd.get(), bytes.data(), bytes.size());
  if (n < 0 && errno != EINTR) {
    return ErrnoStatus(errno, absl::StrCat("read '", file->file.path, "'"));
  }
  if (n <= 0) return absl::OkStatus();
  bytes.resize(static_cast<size_t>(n));
  *any = true;
  if (!sink(file->file, std::move(bytes))) stopped_ = true;
  return absl::OkStatus();
}

absl::Status LogReader::Run(const Sink& sink) {
  while (true) {
    // Asked before the last look: what was written before the end is read.
    const bool closed = catalog_->closed();
    TakeNew();
    bool any = false;
    for (OpenFile& file : open_) {
      DDPRUN_RETURN_IF_ERROR(ReadOnce(sink, &file, &any));
      if (stopped_) return absl::CancelledError("nobody reads any more");
    }
    if (any) continue;
    if (!waiting_.empty()) {
      DDPRUN_RETURN_IF_ERROR(OpenNext());
      continue;
    }
    if (!request_.follow || closed) return absl::OkStatus();
    Wait();
    if (stopped_) return absl::CancelledError("nobody reads any more");
  }
}

void LogReader::Wait() const {
  std::array<pollfd, 2> fds = {pollfd{.fd = inotify_.get(), .events = POLLIN, .revents = 0},
                               pollfd{.fd = wake_->get(), .events = POLLIN, .revents = 0}};
  poll(fds.data(), fds.size(), -1);
  Discard(inotify_.get());
  Discard(wake_->get());
}

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
