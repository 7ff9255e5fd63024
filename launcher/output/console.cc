#include "launcher/output/console.h"

#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/errno_status.h"

namespace ddprun::launcher {
namespace {

// The longest run of whole lines that fits into PIPE_BUF, or the first line if that is longer.
absl::string_view WholeLines(absl::string_view pending) {
  if (pending.size() <= PIPE_BUF) return pending;
  size_t end = pending.rfind('\n', PIPE_BUF - 1);
  if (end == absl::string_view::npos) end = pending.find('\n');
  return pending.substr(0, end == absl::string_view::npos ? pending.size() : end + 1);
}

}  // namespace

ConsoleSink::ConsoleSink(int fd) : fd_(fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0) {
    broken_ = true;
    return;
  }
  socket_ = S_ISSOCK(info.st_mode);
  regular_ = S_ISREG(info.st_mode);
  if (!S_ISFIFO(info.st_mode) && !S_ISCHR(info.st_mode)) return;  // a regular file never blocks
  own_.Reset(open(absl::StrCat("/proc/self/fd/", fd).c_str(),
                  O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC));
  if (own_.valid()) {
    fd_ = own_.get();
  } else {
    ask_first_ = true;  // the terminal of another user, after su(1)
  }
}

size_t ConsoleSink::Write(absl::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const absl::string_view rest = broken_ ? absl::string_view() : bytes.substr(done);
    const ssize_t n = WriteSome(regular_ ? rest : WholeLines(rest));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    // EPIPE, EIO: the reader is gone. Files still get everything.
    if (n <= 0) broken_ = true;
    done = broken_ ? bytes.size() : done + static_cast<size_t>(n);
  }
  return done;
}

bool ConsoleSink::WaitWritable(absl::Duration timeout) const {
  pollfd poll_fd{.fd = fd_, .events = POLLOUT, .revents = 0};
  const auto ms = static_cast<int>(absl::ToInt64Milliseconds(timeout));
  return poll(&poll_fd, 1, ms) == 1;
}

ssize_t ConsoleSink::WriteSome(absl::string_view bytes) const {
  if (socket_) return send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (ask_first_ && !WaitWritable(absl::ZeroDuration())) {
    errno = EAGAIN;
    return -1;
  }
  return write(fd_, bytes.data(), bytes.size());
}

namespace {

constexpr absl::Duration kLastFlush = absl::Milliseconds(200);

// What a console is for: its device and inode, or a descriptor.
using Target = std::tuple<dev_t, ino_t, int>;

Target TargetOf(int fd) {
  struct stat info {};
  if (fstat(fd, &info) != 0 || S_ISREG(info.st_mode)) return {0, 0, fd};
  return {info.st_dev, info.st_ino, -1};
}

}  // namespace

std::shared_ptr<Console> Console::For(EventLoop* loop, int fd) {
  static thread_local std::map<std::pair<EventLoop*, Target>, std::weak_ptr<Console>> consoles;
  std::weak_ptr<Console>& known = consoles[{loop, TargetOf(fd)}];
  std::shared_ptr<Console> console = known.lock();
  if (console == nullptr) {
    console.reset(new Console(loop, fd));
    known = console;
  }
  return console;
}

Console::Console(EventLoop* loop, int fd) : loop_(loop), sink_(fd) {}

Console::~Console() {
  const Instant end = MonotonicNow() + kLastFlush;
  while (busy() && sink_.WaitWritable(std::max(absl::ZeroDuration(), end - MonotonicNow()))) {
    Flush();
  }
}

void Console::Write(absl::string_view lines) {
  // Most of it never needs a copy.
  if (!busy()) lines.remove_prefix(sink_.Write(lines));
  absl::StrAppend(&pending_, lines);
  if (busy() && watch_ == nullptr) WatchWritable();
}

void Console::WatchWritable() {
  writable_.Reset(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLOUT, .data = {.fd = sink_.fd()}};
  if (!writable_.valid() || epoll_ctl(writable_.get(), EPOLL_CTL_ADD, sink_.fd(), &event) != 0) {
    sink_.Break();  // it took nothing and can't be waited for
    Flush();
    return;
  }
  watch_ = std::make_unique<FdWatch>(loop_, writable_.get(), [this] { OnWritable(); });
}

void Console::Await(const void* owner, std::function<void()> on_ready) {
  waiting_.emplace_back(owner, std::move(on_ready));
}

void Console::Forget(const void* owner) {
  waiting_.erase(std::remove_if(waiting_.begin(), waiting_.end(),
                                [&](const auto& entry) { return entry.first == owner; }),
                 waiting_.end());
}

void Console::Flush() { pending_.erase(0, sink_.Write(pending_)); }

void Console::OnWritable() {
  Flush();
  if (busy()) return;
  watch_.reset();
  // Each may write and make us busy again, or drop the last stream, and us with it.
  const std::shared_ptr<Console> self = shared_from_this();
  while (!busy() && !waiting_.empty()) {
    auto on_ready = std::move(waiting_.front().second);
    waiting_.pop_front();
    on_ready();
  }
}

CollapsingConsole::CollapsingConsole(EventLoop* loop, int fd, Prefix prefix)
    : loop_(loop),
      prefix_(std::move(prefix)),
      console_(Console::For(loop, fd)),
      timer_(loop, [this] { Flush(); }) {}

CollapsingConsole::~CollapsingConsole() { Write(collapser_.TakeAll()); }

void CollapsingConsole::Begin(uint32_t local_rank) { collapser_.Begin(local_rank); }

void CollapsingConsole::End(uint32_t local_rank) {
  collapser_.End(local_rank);
  Flush();
}

void CollapsingConsole::Add(uint32_t local_rank, absl::string_view line) {
  collapser_.Add(loop_->Now(), local_rank, line);
}

void CollapsingConsole::Flush() {
  Write(collapser_.Take(loop_->Now()));
  timer_.Arm(collapser_.NextDeadline());
}

void CollapsingConsole::Write(const std::vector<LineCollapser::Line>& lines) {
  std::string text;
  for (const LineCollapser::Line& line : lines) {
    absl::StrAppend(&text, prefix_(line.local_ranks), line.text, "\n");
  }
  if (!text.empty()) console_->Write(text);
}

absl::StatusOr<FdPair> MakePseudoTerminal(int like) {
  FdPair pair;
  pair.first.Reset(posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC));
  if (!pair.first.valid() || unlockpt(pair.first.get()) != 0) {
    return ErrnoStatus(errno, "open /dev/ptmx");
  }
  // Not by its name: it may be of another mount namespace.
  pair.second.Reset(ioctl(pair.first.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC));
  termios settings{};
  if (!pair.second.valid() || tcgetattr(pair.second.get(), &settings) != 0) {
    return ErrnoStatus(errno, "open a pseudo-terminal");
  }
  cfmakeraw(&settings);
  if (tcsetattr(pair.second.get(), TCSANOW, &settings) != 0) {
    return ErrnoStatus(errno, "set up a pseudo-terminal");
  }
  CopyWindowSize(like, pair.first.get());
  return pair;
}

void CopyWindowSize(int from, int to) {
  winsize size{};
  if (ioctl(from, TIOCGWINSZ, &size) == 0) ioctl(to, TIOCSWINSZ, &size);
}

}  // namespace ddprun::launcher
