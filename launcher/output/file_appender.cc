#include "launcher/output/file_appender.h"

#include <fcntl.h>
#include <uv.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/errno_status.h"
#include "base/log.h"

namespace ddprun::launcher {
namespace {

// How many chunks one writev(2) takes.
constexpr size_t kChunksPerWrite = 16;

}  // namespace

// One uv_fs_write(3) request; keeps its appender alive.
struct FileAppender::Write {
  uv_fs_t request{};
  std::shared_ptr<FileAppender> appender;
};

absl::StatusOr<std::shared_ptr<FileAppender>> FileAppender::Open(EventLoop* loop,
                                                                 const std::string& path) {
  Fd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (!fd.valid()) return ErrnoStatus(errno, absl::StrCat("open log file '", path, "'"));
  return std::shared_ptr<FileAppender>(new FileAppender(loop, path, std::move(fd)));
}

FileAppender::FileAppender(EventLoop* loop, std::string path, Fd fd)
    : loop_(loop), path_(std::move(path)), fd_(std::move(fd)) {}

void FileAppender::Append(std::string bytes) {
  if (bytes.empty() || failed_) return;
  waiting_bytes_ += bytes.size();
  chunks_.push_back(std::move(bytes));
  if (chunks_.size() == 1) StartWrite();
}

void FileAppender::Listen(const void* owner, std::function<void()> on_written) {
  listeners_[owner] = std::move(on_written);
}

void FileAppender::StartWrite() {
  auto* write = new Write{.appender = shared_from_this()};
  write->request.data = write;
  std::vector<uv_buf_t> buffers;
  size_t done = written_;
  for (size_t i = 0; i < std::min(chunks_.size(), kChunksPerWrite); ++i) {
    buffers.push_back(
        uv_buf_init(chunks_[i].data() + done, static_cast<unsigned>(chunks_[i].size() - done)));
    done = 0;
  }
  const int error =
      uv_fs_write(loop_->uv(), &write->request, fd_.get(), buffers.data(),
                  static_cast<unsigned>(buffers.size()), /*offset=*/-1, [](uv_fs_t* request) {
                    const std::unique_ptr<Write> finished(static_cast<Write*>(request->data));
                    const ssize_t result = request->result;
                    uv_fs_req_cleanup(request);
                    finished->appender->OnWritten(result);
                  });
  DDPRUN_CHECK(error == 0, uv_strerror(error));  // only bad arguments fail here
}

void FileAppender::OnWritten(ssize_t result) {
  if (result <= 0) {
    failed_ = true;
    chunks_.clear();
    waiting_bytes_ = 0;
    const absl::Status error = ErrnoStatus(static_cast<int>(-result), "write");
    Log(LogLevel::kError, absl::StrCat("log file '", path_, "': ", error.message(),
                                       "; the rest of this worker's output is not kept there"));
  } else {
    Drop(static_cast<size_t>(result));
  }
  if (!chunks_.empty()) StartWrite();
  // A copy: a listener may go, and take others with it.
  for (const auto& [owner, ignored] : std::map(listeners_)) {
    const auto found = listeners_.find(owner);
    if (found == listeners_.end()) continue;
    const std::function<void()> on_written = found->second;
    on_written();
  }
}

// Takes what was written off the front.
void FileAppender::Drop(size_t bytes) {
  waiting_bytes_ -= bytes;
  written_ += bytes;
  while (!chunks_.empty() && written_ >= chunks_.front().size()) {
    written_ -= chunks_.front().size();
    chunks_.pop_front();
  }
}

}  // namespace ddprun::launcher
