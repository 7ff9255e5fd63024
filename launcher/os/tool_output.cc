#include "launcher/os/tool_output.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/null_terminated.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
namespace {

constexpr size_t kOutputMax = 64 << 10;

absl::StatusOr<pid_t> SpawnTool(const std::vector<std::string>& argv, int output) {
  const std::vector<char*> words = NullTerminated(argv);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, output, STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSID);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words[0], &files, &attributes, words.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) return ErrnoStatus(error, absl::StrCat("run '", argv[0], "'"));
  return pid;
}

// False = the time is over.
bool AwaitReadable(int fd, Instant deadline) {
  while (true) {
    const double left = absl::ToDoubleMilliseconds(deadline - MonotonicNow());
    pollfd ready{.fd = fd, .events = POLLIN, .revents = 0};
    const int found = poll(&ready, 1, static_cast<int>(std::max(0.0, left)));
    if (found >= 0 || errno != EINTR) return found != 0;
  }
}

// Until the end of the output. False = the time is over.
bool ReadUntil(int fd, Instant deadline, std::string* output) {
  while (AwaitReadable(fd, deadline)) {
    char bytes[4096];
    const ssize_t n = read(fd, bytes, sizeof(bytes));
    if (n == 0 || (n < 0 && errno != EINTR)) return true;
    if (n > 0 && output->size() < kOutputMax) output->append(bytes, static_cast<size_t>(n));
  }
  return false;
}

}  // namespace

absl::StatusOr<std::string> ToolOutput(const std::vector<std::string>& argv, absl::Duration limit) {
  DDPRUN_ASSIGN_OR_RETURN(FdPair pipe, MakePipe());
  DDPRUN_ASSIGN_OR_RETURN(const pid_t pid, SpawnTool(argv, pipe.second.get()));
  pipe.second.Reset(-1);
  const Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  std::string output;
  const Instant deadline = MonotonicNow() + limit;
  const bool in_time = ReadUntil(pipe.first.get(), deadline, &output) &&
                       (!pidfd.valid() || AwaitReadable(pidfd.get(), deadline));
  // Not reaped yet, so the pid and its session are still its own.
  if (!in_time) kill(-pid, SIGKILL);
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (!in_time) {
    return absl::DeadlineExceededError(
        absl::StrCat("'", argv[0], "' gave no answer within ", absl::FormatDuration(limit)));
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    return absl::AbortedError(absl::StrCat("'", argv[0], "' failed"));
  }
  return output;
}

}  // namespace ddprun::launcher
