#include "launcher/os/stack_probe.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/fd.h"
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

namespace {

// The most that is read of a file of /proc. The fields that are used come far earlier.
constexpr size_t kProcBytesMax = 16 << 10;
// How many ancestors of a process are searched for a worker.
constexpr int kAncestorsMax = 64;

struct Stat {
  pid_t parent = 0;
  char state = 'S';
  uint64_t ticks = 0;
};

// "pid (name, which may hold anything) state ppid …", proc_pid_stat(5).
std::optional<Stat> ParseStat(const std::string& text) {
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<absl::string_view> fields =
      absl::StrSplit(absl::string_view(text).substr(name_end + 1), ' ', absl::SkipEmpty());
  constexpr size_t kUserTime = 11;  // field 14; the state is field 3
  Stat stat;
  if (fields.size() < kUserTime + 4 || fields[0].size() != 1) return std::nullopt;
  stat.state = fields[0][0];
  if (!absl::SimpleAtoi(fields[1], &stat.parent)) return std::nullopt;
  // The process's own time, and that of children it has waited for.
  for (size_t i = kUserTime; i < kUserTime + 4; ++i) {
    uint64_t ticks = 0;
    if (!absl::SimpleAtoi(fields[i], &ticks)) return std::nullopt;
    stat.ticks += ticks;
  }
  return stat;
}

// rchar and wchar of proc_pid_io(5): what went through read(2) and write(2).
uint64_t BytesOf(const std::string& text) {
  uint64_t sum = 0;
  for (absl::string_view line : absl::StrSplit(text, '\n')) {
    uint64_t bytes = 0;
    if ((absl::ConsumePrefix(&line, "rchar: ") || absl::ConsumePrefix(&line, "wchar: ")) &&
        absl::SimpleAtoi(line, &bytes)) {
      sum += bytes;
    }
  }
  return sum;
}

absl::Duration TicksToDuration(uint64_t ticks) {
  static const int64_t per_second = std::max<int64_t>(1, sysconf(_SC_CLK_TCK));
  return absl::Seconds(1) * static_cast<int64_t>(ticks) / per_second;
}

}  // namespace

std::string KernelStackText(const std::string& stack) {
  std::vector<absl::string_view> functions;
  for (absl::string_view line : absl::StrSplit(stack, '\n', absl::SkipEmpty())) {
    const size_t space = line.find(' ');  // "[<0>] pipe_read+0x31f/0x4b0"
    if (space == absl::string_view::npos) continue;
    line = line.substr(space + 1);
    functions.push_back(line.substr(0, line.find('+')));
  }
  return absl::StrJoin(functions, " < ");
}

ProcessProbe::ProcessProbe(std::string root) : root_(std::move(root)) {}

std::string ProcessProbe::Text(const std::string& path) const {
  const Fd fd(open((root_ + path).c_str(), O_RDONLY | O_CLOEXEC));
  std::string text(fd.valid() ? kProcBytesMax : 0, '\0');
  size_t length = 0;
  while (length < text.size()) {
    const ssize_t n = read(fd.get(), text.data() + length, text.size() - length);
    if (n <= 0) break;
    length += static_cast<size_t>(n);
  }
  text.resize(length);
  return text;
}

std::vector<WorkerVital> ProcessProbe::Look(const std::vector<pid_t>& pids) const {
  std::map<pid_t, Stat> all;
  const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir((root_ + "/proc").c_str()), closedir);
  while (const dirent* entry = directory == nullptr ? nullptr : readdir(directory.get())) {
    pid_t pid = 0;
    if (!absl::SimpleAtoi(entry->d_name, &pid)) continue;
    const std::optional<Stat> stat = ParseStat(Text(absl::StrCat("/proc/", pid, "/stat")));
    if (stat.has_value()) all[pid] = *stat;
  }
  std::map<pid_t, size_t> wanted;
  std::vector<WorkerVital> vitals(pids.size());
  for (size_t i = 0; i < pids.size(); ++i) {
    const auto found = all.find(pids[i]);
    if (pids[i] <= 0 || found == all.end() || found->second.state == 'Z') continue;
    wanted[pids[i]] = i;
    vitals[i].alive = true;
    vitals[i].state = found->second.state;
    const std::string base = absl::StrCat("/proc/", pids[i]);
    // The main thread's nanoseconds on a processor, nanoseconds waiting for one, and turns.
    const std::vector<std::string> schedule =
        absl::StrSplit(Text(base + "/schedstat"), absl::ByAnyChar(" \n"), absl::SkipEmpty());
    if (schedule.size() < 3 || !absl::SimpleAtoi(schedule[2], &vitals[i].turns)) {
      vitals[i].turns = 0;
    }
    const std::string stack = KernelStackText(Text(base + "/stack"));  // root only
    const std::string place = Text(base + "/wchan");
    vitals[i].where = !stack.empty() ? stack.substr(0, stack.find(' ')) : place == "0" ? "" : place;
    vitals[i].stack = absl::StrCat(stack.empty() ? place : stack, "\n", Text(base + "/syscall"));
  }
  for (const auto& [pid, stat] : all) {
    pid_t climbing = pid;
    for (int depth = 0; depth < kAncestorsMax && climbing > 1 && !wanted.contains(climbing);
         ++depth) {
      const auto found = all.find(climbing);
      climbing = found == all.end() ? 0 : found->second.parent;
    }
    const auto owner = wanted.find(climbing);
    if (owner == wanted.end()) continue;
    vitals[owner->second].cpu += TicksToDuration(stat.ticks);
    vitals[owner->second].bytes += BytesOf(Text(absl::StrCat("/proc/", pid, "/io")));
  }
  return vitals;
}

}  // namespace ddprun::launcher
