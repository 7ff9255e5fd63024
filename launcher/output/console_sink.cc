#include "launcher/output/console_sink.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>

#include "absl/strings/str_cat.h"

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

}  // namespace ddprun::launcher
