#include "base/fd.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/status_macros.h"

namespace ddprun {
namespace {

// From before the first RaiseDescriptorLimit(); zeros = there was none.
rlimit given_limit{};

}  // namespace

void Fd::Reset(int fd) {
  if (fd_ >= 0) close(fd_);
  fd_ = fd;
}

absl::StatusOr<FdPair> MakePipe() {
  int fds[2];
  if (pipe2(fds, O_CLOEXEC) != 0) return ErrnoStatus(errno, "pipe2");
  return FdPair{Fd(fds[0]), Fd(fds[1])};
}

void FillStandardStreams() {
  // Without the C library's own functions, which a sanitizer may have in hand, and not yet begun.
  long fd = -1;  // NOLINT(google-runtime-int)
  do {
    fd = syscall(SYS_openat, AT_FDCWD, "/dev/null", O_RDWR);  // the lowest free number
  } while (fd >= 0 && fd <= STDERR_FILENO);
  if (fd >= 0) syscall(SYS_close, fd);
}

absl::StatusOr<FdPair> MakeMessagePair() {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
    return ErrnoStatus(errno, "socketpair");
  }
  return FdPair{Fd(fds[0]), Fd(fds[1])};
}

absl::Status SetNonBlocking(int fd, bool on) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0) return ErrnoStatus(errno, "fcntl F_GETFL");
  if (fcntl(fd, F_SETFL, on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK) != 0) {
    return ErrnoStatus(errno, "fcntl F_SETFL");
  }
  return absl::OkStatus();
}

absl::Status WriteAll(int fd, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = write(fd, bytes.data(), bytes.size());
    if (n < 0) {
      if (errno == EINTR) continue;
      return ErrnoStatus(errno, "write");
    }
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return absl::OkStatus();
}

absl::Status AwaitReady(int fd, int16_t events, Instant deadline, absl::string_view peer) {
  while (true) {
    const double left = absl::ToDoubleMilliseconds(deadline - MonotonicNow());
    pollfd ready{.fd = fd, .events = events, .revents = 0};
    const int found = poll(&ready, 1, static_cast<int>(std::ceil(std::max(0.0, left))));
    if (found > 0) return absl::OkStatus();
    if (found == 0) return absl::DeadlineExceededError(absl::StrCat(peer, " gave no answer"));
    if (errno != EINTR) return ErrnoStatus(errno, "poll");
  }
}

absl::Status SendAll(int fd, absl::string_view bytes, Instant deadline, absl::string_view peer) {
  while (!bytes.empty()) {
    const ssize_t sent = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
    if (sent >= 0 || errno == EINTR) continue;
    if (errno != EAGAIN) return ErrnoStatus(errno, absl::StrCat("send to ", peer));
    DDPRUN_RETURN_IF_ERROR(AwaitReady(fd, POLLOUT, deadline, peer));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReceiveAll(int fd, size_t size, Instant deadline,
                                       absl::string_view peer) {
  std::string bytes(size, '\0');
  for (size_t at = 0; at < size;) {
    DDPRUN_RETURN_IF_ERROR(AwaitReady(fd, POLLIN, deadline, peer));
    const ssize_t got = recv(fd, bytes.data() + at, size - at, 0);
    if (got > 0) at += static_cast<size_t>(got);
    if (got == 0) return absl::UnavailableError(absl::StrCat(peer, " closed the connection"));
    if (got < 0 && errno != EINTR && errno != EAGAIN) {
      return ErrnoStatus(errno, absl::StrCat("receive from ", peer));
    }
  }
  return bytes;
}

uint64_t RaiseDescriptorLimit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 0;
  if (limit.rlim_cur == limit.rlim_max) return limit.rlim_cur;
  if (given_limit.rlim_max == 0) given_limit = limit;
  const rlimit raised{.rlim_cur = limit.rlim_max, .rlim_max = limit.rlim_max};
  return setrlimit(RLIMIT_NOFILE, &raised) == 0 ? raised.rlim_cur : limit.rlim_cur;
}

void RestoreDescriptorLimit() {
  if (given_limit.rlim_max != 0) setrlimit(RLIMIT_NOFILE, &given_limit);
}

absl::Status CheckDescriptors(uint64_t count) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_max >= count) return absl::OkStatus();
  return absl::ResourceExhaustedError(
      absl::StrCat("too few open files are allowed", LimitAdvice(EMFILE)));
}

uint64_t DescriptorLimit() {
  rlimit limit{};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 ? limit.rlim_cur : 0;
}

namespace {

// pidfd_open(2) is of Linux 5.3, waitid(2) with P_PIDFD of 5.4.
constexpr std::pair<uint32_t, uint32_t> kFirstWithPidfds = {5, 4};

}  // namespace

absl::StatusOr<Fd> OpenPidfd(pid_t pid, absl::string_view whose) {
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd.valid()) return pidfd;
  const int number = errno;
  const absl::Status error = ErrnoStatus(number, absl::StrCat("pidfd_open of ", whose));
  if (number != ENOSYS && number != EPERM) return error;
  return absl::Status(error.code(), absl::StrCat(error.message(), "; ", PidfdAdvice()));
}

std::string PidfdAdvice(absl::string_view release) {
  const std::vector<absl::string_view> numbers = absl::StrSplit(release, absl::ByAnyChar(".-"));
  std::pair<uint32_t, uint32_t> version;
  if (numbers.size() > 1 && absl::SimpleAtoi(numbers[0], &version.first) &&
      absl::SimpleAtoi(numbers[1], &version.second) && version < kFirstWithPidfds) {
    return absl::StrCat("pidfds need Linux 5.4 or newer, and this is Linux ", release);
  }
  return absl::StrCat(
      "Linux ", release,
      " has that call, so a seccomp filter refuses it, as older container runtimes do: update the "
      "runtime, or start the container with --security-opt seccomp=unconfined");
}

std::string PidfdAdvice() {
  utsname system{};
  uname(&system);
  return PidfdAdvice(system.release);
}

}  // namespace ddprun
