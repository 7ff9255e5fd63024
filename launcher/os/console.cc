#include "launcher/os/console.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <map>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kLastFlush = absl::Milliseconds(200);

// The longest run of whole lines that fits into PIPE_BUF, or the first line if that is longer.
absl::string_view WholeLines(absl::string_view pending) {
  if (pending.size() <= PIPE_BUF) return pending;
  size_t end = pending.rfind('\n', PIPE_BUF - 1);
  if (end == absl::string_view::npos) end = pending.find('\n');
  return pending.substr(0, end == absl::string_view::npos ? pending.size() : end + 1);
}

bool WaitWritable(int fd, absl::Duration timeout) {
  pollfd poll_fd{.fd = fd, .events = POLLOUT, .revents = 0};
  const auto ms = static_cast<int>(absl::ToInt64Milliseconds(timeout));
  return poll(&poll_fd, 1, ms) == 1;
}

}  // namespace

std::shared_ptr<Console> Console::For(EventLoop* loop, int fd) {
  static thread_local std::map<std::pair<EventLoop*, int>, std::weak_ptr<Console>> consoles;
  std::weak_ptr<Console>& known = consoles[{loop, fd}];
  std::shared_ptr<Console> console = known.lock();
  if (console == nullptr) {
    console.reset(new Console(loop, fd));
    known = console;
  }
  return console;
}

Console::Console(EventLoop* loop, int fd) : loop_(loop), fd_(fd) { Open(fd); }

void Console::Open(int fd) {
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

Console::~Console() {
  const Instant end = MonotonicNow() + kLastFlush;
  while (busy() && WaitWritable(fd_, std::max(absl::ZeroDuration(), end - MonotonicNow()))) Flush();
}

void Console::Write(absl::string_view lines) {
  // Most of it never needs a copy.
  if (!busy()) lines.remove_prefix(WriteOut(lines));
  absl::StrAppend(&pending_, lines);
  if (busy() && watch_ == nullptr) WatchWritable();
}

void Console::WatchWritable() {
  writable_.Reset(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{.events = EPOLLOUT, .data = {.fd = fd_}};
  if (!writable_.valid() || epoll_ctl(writable_.get(), EPOLL_CTL_ADD, fd_, &event) != 0) {
    broken_ = true;  // it took nothing and can't be waited for
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

void Console::Flush() { pending_.erase(0, WriteOut(pending_)); }

size_t Console::WriteOut(absl::string_view bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const absl::string_view rest = broken_ ? absl::string_view() : bytes.substr(done);
    const ssize_t n = WriteSome(regular_ ? rest : WholeLines(rest));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    // EPIPE, EIO: nobody reads any more. Files still get everything.
    if (n <= 0) broken_ = true;
    done = broken_ ? bytes.size() : done + static_cast<size_t>(n);
  }
  return done;
}

ssize_t Console::WriteSome(absl::string_view bytes) {
  if (socket_) return send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (ask_first_ && !WaitWritable(fd_, absl::ZeroDuration())) {
    errno = EAGAIN;
    return -1;
  }
  return write(fd_, bytes.data(), bytes.size());
}

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

}  // namespace ddprun::launcher
