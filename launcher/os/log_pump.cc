#include "launcher/os/log_pump.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "launcher/os/console.h"
#include "launcher/os/file_appender.h"
#include "launcher/os/line_tail.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kReadBytes = 64 << 10;
// A line that is longer goes to the console in pieces.
constexpr size_t kLineBytesMax = 64 << 10;

class PipeLogStream : public LogStream {
 public:
  PipeLogStream(EventLoop* loop, LogStreamOptions options, Fd pipe,
                std::shared_ptr<FileAppender> file, std::function<void()> on_end)
      : prefix_(std::move(options.prefix)),
        pipe_(std::move(pipe)),
        file_(std::move(file)),
        on_end_(std::move(on_end)),
        watch_(std::make_unique<FdWatch>(loop, pipe_.get(), [this] { OnReadable(); })) {
    if (options.console_fd >= 0) console_ = Console::For(loop, options.console_fd);
    if (file_ != nullptr) file_->set_on_idle([this] { Proceed(); });
  }

  ~PipeLogStream() override {
    if (file_ != nullptr) file_->set_on_idle(nullptr);
    if (console_ == nullptr) return;
    console_->Forget(this);
    CompleteLine();
    console_->Write(console_text_);
  }

  void Drain() override {
    // At most what the pipe holds: a stray descendant may write without end.
    const int capacity = fcntl(pipe_.get(), F_GETPIPE_SZ);
    size_t left = capacity > 0 ? static_cast<size_t>(capacity) : kReadBytes;
    while (!ended_ && left > 0) {
      const size_t got = ReadOnce(left);
      if (got == 0) break;
      left -= got;
    }
    CompleteLine();
    // The rule of one buffer a stream is kept by the bound above, so a busy console may get it.
    if (console_ != nullptr) console_->Write(std::exchange(console_text_, {}));
    Proceed();
  }

  std::string Tail() const override { return tail_.Lines(); }

 private:
  void OnReadable() {
    ReadOnce(kReadBytes);
    Proceed();
  }

  // Returns how many bytes were read; 0 at the end or when there are none now.
  size_t ReadOnce(size_t bytes_max) {
    buffer_.resize(std::min(bytes_max, kReadBytes));
    ssize_t n = 0;
    do {
      n = read(pipe_.get(), buffer_.data(), buffer_.size());
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) {
      ended_ = true;
      CompleteLine();
      return 0;
    }
    const absl::string_view bytes(buffer_.data(), static_cast<size_t>(n));
    tail_.Add(bytes);
    if (file_ != nullptr) file_->Append(std::string(bytes));
    if (console_ != nullptr) AddConsoleText(bytes);
    return bytes.size();
  }

  // Cuts into lines; what has no newline yet waits in line_.
  void AddConsoleText(absl::string_view bytes) {
    while (!bytes.empty()) {
      const size_t newline = bytes.find('\n');
      const size_t end = newline == absl::string_view::npos ? bytes.size() : newline;
      if (newline != 0 && line_.size() >= kLineBytesMax) EmitLine();
      absl::StrAppend(&line_, bytes.substr(0, end));
      if (newline != absl::string_view::npos) EmitLine();
      bytes.remove_prefix(newline == absl::string_view::npos ? end : end + 1);
    }
  }

  void EmitLine() {
    absl::StrAppend(&console_text_, prefix_, line_, "\n");
    line_.clear();
  }

  void CompleteLine() {
    if (!line_.empty()) EmitLine();
  }

  // Moves on what can be moved, then reads on, waits or ends.
  void Proceed() {
    if (console_ != nullptr && !console_text_.empty() && !console_->busy()) {
      console_->Write(std::exchange(console_text_, {}));
    }
    const bool file_busy = file_ != nullptr && !file_->idle();
    const bool console_busy = !console_text_.empty() || (ended_ && console_ && console_->busy());
    if (console_busy && !awaiting_console_) {
      awaiting_console_ = true;
      console_->Await(this, [this] {
        awaiting_console_ = false;
        Proceed();
      });
    }
    if (ended_) {
      watch_.reset();
      if (!file_busy && !console_busy) End();
    } else {
      SetPaused(file_busy || console_busy);
    }
  }

  void SetPaused(bool paused) {
    if (paused == paused_) return;
    paused_ = paused;
    if (paused) {
      watch_->Pause();
    } else {
      watch_->Resume();
    }
  }

  void End() {
    // Moved out first: it may destroy us, and must not be called twice.
    if (auto on_end = std::exchange(on_end_, nullptr); on_end) on_end();
  }

  const std::string prefix_;
  Fd pipe_;
  std::shared_ptr<FileAppender> file_;  // null = none
  std::shared_ptr<Console> console_;    // null = none
  std::function<void()> on_end_;
  std::unique_ptr<FdWatch> watch_;  // null after the end
  std::vector<char> buffer_;
  LineTail tail_;
  std::string line_;          // the beginning of a line whose newline has not come
  std::string console_text_;  // complete lines that a busy console has not taken
  bool awaiting_console_ = false;
  bool paused_ = false;
  bool ended_ = false;
};

}  // namespace

absl::StatusOr<LogStream::Made> LogStream::Create(EventLoop* loop, LogStreamOptions options,
                                                  std::function<void()> on_end) {
  std::shared_ptr<FileAppender> file;
  if (!options.file_path.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(file, FileAppender::Open(loop, options.file_path));
  }
  DDPRUN_ASSIGN_OR_RETURN(FdPair pipe, MakePipe());
  return Made{std::make_unique<PipeLogStream>(loop, std::move(options), std::move(pipe.first),
                                              std::move(file), std::move(on_end)),
              std::move(pipe.second)};
}

}  // namespace ddprun::launcher
