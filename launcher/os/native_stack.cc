#include "launcher/os/native_stack.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/null_terminated.h"

namespace ddprun::launcher {
namespace {

// How long the kernel may take to end a tool. A tool in state D stays a zombie until the agent
// ends.
constexpr int kDyingMilliseconds = 50;

std::string FindTool(const std::string& name, const std::string& search_path) {
  for (const absl::string_view folder : absl::StrSplit(search_path, ':', absl::SkipEmpty())) {
    std::string path = absl::StrCat(folder, "/", name);
    if (access(path.c_str(), X_OK) == 0) return path;
  }
  return "";
}

// py-spy shows Python's frames and can look without stopping the process; gdb shows the others.
std::vector<std::string> Command(pid_t pid, const std::string& search_path, std::string* tool) {
  const std::string number = absl::StrCat(pid);
  if (const std::string path = FindTool("py-spy", search_path); !path.empty()) {
    *tool = "py-spy";
    return {path, "dump", "--nonblocking", "--pid", number};
  }
  if (const std::string path = FindTool("gdb", search_path); !path.empty()) {
    *tool = "gdb";
    return {path, "--batch", "-nx", "-iex", "set debuginfod enabled off",
            // LibTorch's symbols take 8 s to read; the program's own, which say more, and libc's,
            // in which most wait, take one.
            "-iex", "set auto-solib-add off", "-p", number, "-ex", "sharedlibrary libc\\.so\\.6",
            "-ex", "thread apply all backtrace 40"};
  }
  return {};
}

}  // namespace

NativeStack::NativeStack(EventLoop* loop, std::function<void(Result)> on_done)
    : loop_(loop), on_done_(std::move(on_done)) {}

std::unique_ptr<NativeStack> NativeStack::Start(EventLoop* loop, pid_t pid,
                                                const std::string& search_path,
                                                absl::Duration limit,
                                                std::function<void(Result)> on_done) {
  std::unique_ptr<NativeStack> stack(new NativeStack(loop, std::move(on_done)));
  NativeStack* self = stack.get();
  const bool runs = stack->Spawn(pid, search_path);
  stack->limit_ = std::make_unique<Timer>(loop, [self] { self->Finish(); });
  stack->limit_->Arm(runs ? loop->Now() + limit : loop->Now());
  return stack;
}

bool NativeStack::Spawn(pid_t pid, const std::string& search_path) {
  const std::vector<std::string> command = Command(pid, search_path, &result_.tool);
  if (command.empty()) return false;
  absl::StatusOr<FdPair> pipe = MakePipe();
  if (!pipe.ok()) return false;
  const std::vector<char*> argv = NullTerminated(command);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&files, pipe->second.get(), STDOUT_FILENO);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes, &signals);
  sigaddset(&signals, SIGPIPE);  // which the agent ignores
  posix_spawnattr_setsigdefault(&attributes, &signals);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  const int error = posix_spawn(&tool_pid_, argv[0], &files, &attributes, argv.data(), environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  if (error != 0) {
    tool_pid_ = 0;
    return false;
  }
  // Only we reap the tool, so the pid can't have been reused.
  pidfd_.Reset(static_cast<int>(syscall(SYS_pidfd_open, tool_pid_, 0)));
  output_ = std::move(pipe->first);
  SetNonBlocking(output_.get(), true).IgnoreError();  // else a read waits, but only once readable
  watch_ = std::make_unique<FdWatch>(loop_, output_.get(), [this] { Read(); });
  return true;
}

void NativeStack::Read() {
  char bytes[16 << 10];
  const ssize_t n = read(output_.get(), bytes, sizeof(bytes));
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0 || result_.text.size() >= kTextMax) return Finish();
  result_.text.append(bytes, static_cast<size_t>(n));
}

void NativeStack::Kill() {
  watch_.reset();
  if (tool_pid_ == 0) return;
  kill(tool_pid_, SIGKILL);  // it isn't reaped yet, so the number is its own
  // Without pidfds (before Linux 5.3), the end of the tool's output stands for its end.
  pollfd dead{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  if (!pidfd_.valid()) dead = {.fd = output_.get(), .events = 0, .revents = 0};
  const bool is_dying = poll(&dead, 1, kDyingMilliseconds) == 1;
  waitpid(tool_pid_, nullptr, is_dying ? 0 : WNOHANG);
  tool_pid_ = 0;
}

void NativeStack::Finish() {
  Kill();
  limit_->Disarm();
  if (result_.text.size() > kTextMax) result_.text.resize(kTextMax);
  const auto on_done = std::exchange(on_done_, nullptr);
  if (on_done) on_done(std::move(result_));
}

NativeStack::~NativeStack() { Kill(); }

}  // namespace ddprun::launcher
