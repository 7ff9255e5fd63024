#include "launcher/output/log_pump.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/status_macros.h"
#include "launcher/output/console.h"
#include "launcher/output/file_appender.h"

namespace ddprun::launcher {

void LineTail::Add(absl::string_view bytes) {
  if (bytes.size() > kBytesMax) {
    cut_ = true;
    bytes.remove_prefix(bytes.size() - kBytesMax);
    bytes_.clear();
  }
  absl::StrAppend(&bytes_, bytes);
  if (bytes_.size() > 2 * kBytesMax) {
    cut_ = true;
    bytes_.erase(0, bytes_.size() - kBytesMax);
  }
}

std::string LineTail::Lines() const {
  absl::string_view text = bytes_;
  bool cut = cut_;
  if (text.size() > kBytesMax) {
    // One byte more shows whether the first line is whole.
    text.remove_prefix(text.size() - kBytesMax - 1);
    cut = text.front() != '\n';
    text.remove_prefix(1);
  }
  absl::ConsumeSuffix(&text, "\n");
  if (text.empty()) return "";
  std::vector<absl::string_view> lines = absl::StrSplit(text, '\n');
  size_t first = lines.size() > kLinesMax ? lines.size() - kLinesMax : 0;
  if (first == 0 && cut && lines.size() > 1) first = 1;
  std::string result;
  for (size_t i = first; i < lines.size(); ++i) {
    absl::string_view line = lines[i];
    while (absl::ConsumeSuffix(&line, "\r")) {
    }
    if (const size_t frame = line.rfind('\r'); frame != absl::string_view::npos) {
      line.remove_prefix(frame + 1);
    }
    absl::StrAppend(&result, line, "\n");
  }
  return result;
}

namespace {

// The size of the pipe and of one read(2): large enough that a flood costs few system calls, small
// enough that many workers stay below one user's limit for pipes (64 MiB, pipe(7)).
constexpr size_t kReadBytes = 256 << 10;
// A longer line goes to the console in pieces.
constexpr size_t kLineBytesMax = 512 << 10;
// How long text without a line end waits for its rest before it is shown. Programs write a line in
// two pieces within microseconds, and a flood fills a pipe or terminal in the middle of a line, but
// on a busy machine other processes run between the pieces.
constexpr absl::Duration kMoment = absl::Milliseconds(100);
// The same after an unfinished line was shown: it may be a prompt, and a person who types must not
// notice that the terminal's echo is delayed.
constexpr absl::Duration kMomentAfterPrompt = absl::Milliseconds(20);

class PipeLogStream : public LogStream {
 public:
  PipeLogStream(EventLoop* loop, LogStreamOptions options, Fd pipe,
                std::shared_ptr<FileAppender> file, std::function<void()> on_end)
      : prefix_(std::move(options.prefix)),
        raw_(options.raw),
        shared_(options.shared),
        terminal_(options.terminal),
        copy_filters_(std::move(options.copy_filters)),
        local_rank_(options.local_rank),
        pipe_(std::move(pipe)),
        file_(std::move(file)),
        copy_file_(std::move(options.copy_file)),
        collapse_(std::move(options.collapse)),
        on_end_(std::move(on_end)),
        tail_(options.tail != nullptr ? std::move(options.tail) : std::make_shared<LineTail>()),
        watch_(std::make_unique<FdWatch>(loop, pipe_.get(), [this] { OnReadable(); })),
        loop_(loop),
        moment_(loop, [this] { OnMoment(); }) {
    if (options.console_fd >= 0) console_ = Console::For(loop, options.console_fd);
    if (collapse_ != nullptr) collapse_->Begin(local_rank_);
    if (file_ != nullptr) file_->Listen(this, [this] { Proceed(); });
    if (copy_file_ != nullptr) copy_file_->Listen(this, [this] { Proceed(); });
  }

  ~PipeLogStream() override {
    if (console_ != nullptr) console_->Forget(this);
    CompleteLine();
    MoveLines();
    if (console_ != nullptr) console_->Write(console_text_);
    if (collapse_ != nullptr && !ended_) collapse_->End(local_rank_);
    if (file_ != nullptr) file_->Unlisten(this);
    if (copy_file_ != nullptr) copy_file_->Unlisten(this);
  }

  void Drain() override {
    // Read at most one pipe's capacity, because a stray descendant may write without end.
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

  std::string Tail() const override { return tail_->Lines(); }

  void Resize() override {
    if (terminal_ >= 0) CopyWindowSize(terminal_, pipe_.get());
  }

  absl::StatusOr<Fd> Share() const override {
    Fd copy(fcntl(pipe_.get(), F_DUPFD_CLOEXEC, 0));
    if (!copy.valid()) return ErrnoStatus(errno, "duplicate the end of a worker's output");
    return copy;
  }

 private:
  void OnReadable() {
    Read();
    Proceed();
  }

  // Reads what has come, at most kReadBytes.
  void Read() {
    size_t got = 0;
    size_t left = kReadBytes;
    do {
      got = ReadOnce(left);
      left -= got;
      // A pipe gives all at once, a terminal a page or less.
    } while (terminal_ >= 0 && got > 0 && left > 0);
  }

  // Returns how many bytes were read; 0 at the end or when there are none now.
  // The end of a terminal is EIO, and only the second one: the kernel looks for bytes, then whether
  // the other side has closed, so that what comes between the two is there after the first EIO
  // (n_tty_read() of Linux 6.18: once in 20 times where a worker writes 9 MB and ends).
  size_t ReadOnce(size_t bytes_max) {
    // One buffer for all streams, because each read is passed on before the next one.
    static thread_local std::vector<char> buffer(kReadBytes);
    ssize_t n = 0;
    do {
      n = read(pipe_.get(), buffer.data(), std::min(bytes_max, kReadBytes));
    } while (n < 0 && (errno == EINTR || (errno == EIO && !std::exchange(worker_closed_, true))));
    if (n < 0 && errno == EAGAIN) return 0;
    if (n <= 0) {
      ended_ = true;
      CompleteLine();
      if (collapse_ != nullptr) collapse_->End(local_rank_);
      return 0;
    }
    const absl::string_view bytes(buffer.data(), static_cast<size_t>(n));
    tail_->Add(bytes);
    if (file_ != nullptr) file_->Append(std::string(bytes));
    if (raw_) {
      AddRaw(bytes);
      return bytes.size();
    }
    if (console_ != nullptr || copy_file_ != nullptr) AddLines(bytes);
    return bytes.size();
  }

  // Text without a line end waits in line_ for a moment.
  void AddRaw(absl::string_view bytes) {
    const size_t end = shared_ ? bytes.find_last_of("\n\r") : absl::string_view::npos;
    if (!shared_ || line_.size() + bytes.size() > kLineBytesMax) {
      absl::StrAppend(&console_text_, std::exchange(line_, {}), bytes);
    } else if (end != absl::string_view::npos) {
      absl::StrAppend(&console_text_, std::exchange(line_, {}), bytes.substr(0, end + 1));
      line_ = std::string(bytes.substr(end + 1));
      prompt_was_shown_ = false;
      AwaitMoment(false);
    } else {
      absl::StrAppend(&line_, bytes);
    }
    AwaitMoment(!line_.empty());
  }

  // The moment begins with the first piece of a line; more pieces don't extend it.
  void AwaitMoment(bool waits) {
    if (waits == std::exchange(moment_runs_, waits)) return;
    if (!waits) {
      moment_.Disarm();
    } else if (!paused_) {
      BeginMoment();
    }
  }

  void BeginMoment() {
    const bool prompted = terminal_ >= 0 && prompt_was_shown_;
    moment_end_ = loop_->Now() + (prompted ? kMomentAfterPrompt : kMoment);
    moment_.Arm(moment_end_);
  }

  // The line has no end so far: it is a prompt, or a frame of a progress bar.
  void OnMoment() {
    // The line end may have come if this timer is late.
    Read();
    const bool over = moment_runs_ && loop_->Now() >= moment_end_;
    if (over) moment_runs_ = false;
    if (over && raw_) {
      prompt_was_shown_ = true;
      CompleteLine();
    } else if (over) {
      ShowFrame();
    }
    Proceed();
  }

  // The newest frame of what waits in line_, as a line of its own.
  void ShowFrame() {
    absl::string_view frame = line_;
    while (absl::ConsumeSuffix(&frame, "\r")) {
    }
    if (const size_t begin = frame.rfind('\r'); begin != absl::string_view::npos) {
      frame.remove_prefix(begin + 1);
    }
    line_ = std::string(frame);
    if (line_.empty()) return;
    EmitLine("");
    frame_was_shown_ = true;
  }

  // Cuts into lines; what has no newline yet waits in line_.
  void AddLines(absl::string_view bytes) {
    if (absl::StrContains(bytes, '\n')) AwaitMoment(false);
    while (!bytes.empty()) {
      const size_t newline = bytes.find('\n');
      const bool whole = newline != absl::string_view::npos;
      absl::string_view piece = bytes.substr(0, newline);
      bytes.remove_prefix(piece.size() + (whole ? 1 : 0));
      while (line_.size() + piece.size() > kLineBytesMax) {
        const absl::string_view part = piece.substr(0, kLineBytesMax - line_.size());
        EmitLine(part);
        piece.remove_prefix(part.size());
      }
      // The newline that ends a bar whose last frame was shown adds nothing.
      if (!whole) {
        absl::StrAppend(&line_, piece);
      } else if (!std::exchange(frame_was_shown_, false) || !line_.empty() || !piece.empty()) {
        EmitLine(piece);
      }
    }
    AwaitMoment(absl::StrContains(line_, '\r'));
  }

  // One line: what waits in line_, then `rest`.
  void EmitLine(absl::string_view rest) {
    if (collapse_ != nullptr) {
      collapse_->Add(local_rank_, absl::StrCat(line_, rest));
    } else if (console_ != nullptr) {
      absl::StrAppend(&console_text_, prefix_, line_, rest, "\n");
    }
    if (copy_file_ != nullptr) CopyLine(rest);
    line_.clear();
  }

  void CopyLine(absl::string_view rest) {
    const std::string line = absl::StrCat(line_, rest);
    const bool wanted =
        std::any_of(copy_filters_.begin(), copy_filters_.end(),
                    [&](const std::string& filter) { return absl::StrContains(line, filter); });
    if (wanted) absl::StrAppend(&copy_text_, prefix_, line, "\n");
  }

  void CompleteLine() {
    AwaitMoment(false);
    if (raw_) {
      absl::StrAppend(&console_text_, std::exchange(line_, {}));
    } else if (!line_.empty()) {
      EmitLine("");
    }
  }

  // Passes the lines on to the copy file, the collapser or the console.
  void MoveLines() {
    if (copy_file_ != nullptr) copy_file_->Append(std::exchange(copy_text_, {}));
    if (collapse_ != nullptr) collapse_->Flush();
    if (console_ != nullptr && !console_text_.empty() && !console_->busy()) {
      console_->Write(console_text_);
      console_text_.clear();  // keeps its space for the next lines
    }
  }

  // Moves on what can be moved, then reads on, waits or ends.
  void Proceed() {
    MoveLines();
    const bool console_busy = !console_text_.empty() ||
                              ((ended_ || collapse_ != nullptr) && console_ && console_->busy());
    if (console_busy && !awaiting_console_) {
      awaiting_console_ = true;
      console_->Await(this, [this] {
        awaiting_console_ = false;
        Proceed();
      });
    }
    if (ended_) {
      watch_.reset();
      const bool file_done = file_ == nullptr || file_->idle();
      const bool copy_done = copy_file_ == nullptr || copy_file_->idle();
      if (file_done && copy_done && !console_busy) End();
    } else {
      SetPaused((file_ && file_->full()) || (copy_file_ && copy_file_->full()) || console_busy);
    }
  }

  void SetPaused(bool paused) {
    if (paused == paused_) return;
    paused_ = paused;
    if (paused) {
      watch_->Pause();
      moment_.Disarm();  // what isn't read may have the rest of the line
    } else {
      watch_->Resume();
      if (moment_runs_) BeginMoment();
    }
  }

  void End() {
    // Moved out first: it may destroy us, and must not be called twice.
    if (auto on_end = std::exchange(on_end_, nullptr); on_end) on_end();
  }

  const std::string prefix_;
  const bool raw_;
  const bool shared_;
  const int terminal_;  // -1 = pipe_ is a pipe
  const std::vector<std::string> copy_filters_;
  const uint32_t local_rank_;
  Fd pipe_;
  std::shared_ptr<FileAppender> file_;           // null = none
  std::shared_ptr<FileAppender> copy_file_;      // null = none
  std::shared_ptr<CollapsingConsole> collapse_;  // takes the console's lines; null = none
  std::shared_ptr<Console> console_;             // null = none
  std::function<void()> on_end_;
  std::shared_ptr<LineTail> tail_;
  std::unique_ptr<FdWatch> watch_;  // null after the end
  std::string line_;                // the beginning of a line whose newline has not come
  std::string console_text_;        // complete lines that a busy console has not taken
  std::string copy_text_;           // those for copy_file_
  EventLoop* loop_;
  Timer moment_;  // armed while line_ holds what is shown without an end
  Instant moment_end_;
  bool moment_runs_ = false;       // or would, were we not paused
  bool prompt_was_shown_ = false;  // of raw bytes, a piece of the newest line, without its end
  bool frame_was_shown_ = false;   // the newest output shown is a frame of a bar
  bool awaiting_console_ = false;
  bool paused_ = false;
  bool worker_closed_ = false;  // of a terminal: read(2) has said so once
  bool ended_ = false;
};

}  // namespace

absl::StatusOr<LogStream::Made> LogStream::Create(EventLoop* loop, LogStreamOptions options,
                                                  std::function<void()> on_end) {
  std::shared_ptr<FileAppender> file;
  if (!options.file_path.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(file, FileAppender::Open(loop, options.file_path));
  }
  DDPRUN_ASSIGN_OR_RETURN(
      FdPair pipe, options.terminal >= 0 ? MakePseudoTerminal(options.terminal) : MakePipe());
  fcntl(pipe.first.get(), F_SETPIPE_SZ,
        kReadBytes);  // refused to a user who has many: then smaller
  return Made{std::make_unique<PipeLogStream>(loop, std::move(options), std::move(pipe.first),
                                              std::move(file), std::move(on_end)),
              std::move(pipe.second)};
}

}  // namespace ddprun::launcher
