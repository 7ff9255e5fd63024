#include "launcher/os/file_appender.h"

#include <fcntl.h>
#include <uv.h>

#include <cerrno>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/errno_status.h"
#include "base/log.h"

namespace ddprun::launcher {

// One uv_fs_write(3) request; keeps its appender alive.
struct FileAppender::Write {
  uv_fs_t request{};
  std::shared_ptr<FileAppender> appender;
};

absl::StatusOr<std::shared_ptr<FileAppender>> FileAppender::Open(EventLoop* loop,
                                                                 const std::string& path) {
  Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open log file '", path, "'"));
  return std::shared_ptr<FileAppender>(new FileAppender(loop, path, std::move(fd)));
}

FileAppender::FileAppender(EventLoop* loop, std::string path, Fd fd)
    : loop_(loop), path_(std::move(path)), fd_(std::move(fd)) {}

void FileAppender::Append(std::string bytes) {
  if (bytes.empty() || failed_) return;
  chunks_.push_back(std::move(bytes));
  if (chunks_.size() == 1) StartWrite();
}

void FileAppender::StartWrite() {
  std::string& chunk = chunks_.front();
  auto* write = new Write{.appender = shared_from_this()};
  write->request.data = write;
  const uv_buf_t buffer =
      uv_buf_init(chunk.data() + written_, static_cast<unsigned>(chunk.size() - written_));
  const int error = uv_fs_write(
      loop_->uv(), &write->request, fd_.get(), &buffer, 1, /*offset=*/-1, [](uv_fs_t* request) {
        const std::unique_ptr<Write> done(static_cast<Write*>(request->data));
        const ssize_t result = request->result;
        uv_fs_req_cleanup(request);
        done->appender->OnWritten(result);
      });
  DDPRUN_CHECK(error == 0, uv_strerror(error));  // only bad arguments fail here
}

void FileAppender::OnWritten(ssize_t result) {
  if (result <= 0) {
    failed_ = true;
    chunks_.clear();
    const absl::Status error = ErrnoStatus(static_cast<int>(-result), "write");
    Log(LogLevel::kError, absl::StrCat("log file '", path_, "': ", error.message(),
                                       "; the rest of this worker's output is not kept there"));
  } else {
    written_ += static_cast<size_t>(result);
    if (written_ == chunks_.front().size()) {
      chunks_.pop_front();
      written_ = 0;
    }
  }
  if (!chunks_.empty()) return StartWrite();
  // A copy: the callee may replace it.
  if (auto on_idle = on_idle_; on_idle) on_idle();
}

}  // namespace ddprun::launcher
