#include "launcher/keeper/exec_child.h"

#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/sched.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <map>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/fd.h"
#include "base/glibc/later_functions.h"
#include "base/null_terminated.h"

namespace ddprun::launcher {
namespace {

// All that the child needs, made before fork(2), so that it only makes system calls.
struct Prepared {
  std::vector<char*> argv;
  std::vector<char*> environment;
  std::vector<std::string> candidates;
  std::vector<cpu_set_t> cpus;  // one mask, as long as it must be; empty = inherited
  int stdout_fd;
  int stderr_fd;
  int inherited_fd;
  pid_t parent;
  int report;
};

std::vector<cpu_set_t> CpuMask(const std::vector<uint32_t>& cpus) {
  if (cpus.empty()) return {};
  const size_t bits = size_t{*std::max_element(cpus.begin(), cpus.end())} + 1;
  std::vector<cpu_set_t> mask((CPU_ALLOC_SIZE(bits) - 1) / sizeof(cpu_set_t) + 1);
  for (const uint32_t cpu : cpus) CPU_SET_S(cpu, mask.size() * sizeof(cpu_set_t), mask.data());
  return mask;
}

[[noreturn]] void Fail(const Prepared& prepared, StartError::Stage stage, int error_number) {
  const StartError error{.stage = stage, .error_number = error_number};
  // Smaller than PIPE_BUF into an empty pipe: never short. Nobody is left to be told of a failure.
  [[maybe_unused]] const ssize_t n = write(prepared.report, &error, sizeof(error));
  _exit(127);
}

// Runs in the child, between fork(2) and exec(2).
[[noreturn]] void RunChild(const Prepared& prepared) {
  using Stage = StartError::Stage;
  setsid();
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  // The parent may have died before that took effect.
  if (getppid() != prepared.parent) Fail(prepared, Stage::kParent, ESRCH);
  // Before exec(2), so that all threads and children of the program inherit it.
  if (!prepared.cpus.empty() &&
      sched_setaffinity(0, prepared.cpus.size() * sizeof(cpu_set_t), prepared.cpus.data()) != 0) {
    Fail(prepared, Stage::kCpus, errno);
  }
  if (prepared.stdout_fd >= 0 && dup2(prepared.stdout_fd, STDOUT_FILENO) < 0) {
    Fail(prepared, Stage::kStdout, errno);
  }
  if (prepared.stderr_fd >= 0 && dup2(prepared.stderr_fd, STDERR_FILENO) < 0) {
    Fail(prepared, Stage::kStderr, errno);
  }
  // All of ours are close-on-exec already; this is for what a library may have opened.
  glibc::CloseRange(STDERR_FILENO + 1, UINT_MAX, CLOSE_RANGE_CLOEXEC);
  if (prepared.inherited_fd >= 0) fcntl(prepared.inherited_fd, F_SETFD, 0);
  struct sigaction by_default {};
  by_default.sa_handler = SIG_DFL;
  sigaction(SIGXFSZ, &by_default, nullptr);  // ours ignore it (main.cc)
  RestoreDescriptorLimit();
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  int error = 0;
  for (const std::string& path : prepared.candidates) {
    execve(path.c_str(), prepared.argv.data(), prepared.environment.data());
    // The first file that is there but can't be run explains most, as in Python's subprocess.
    if (errno != ENOENT && errno != ENOTDIR && error == 0) error = errno;
  }
  Fail(prepared, Stage::kExec, error != 0 ? error : errno);
}

// fork(2) without the handlers of libraries, which fork(3) runs in the child: libuv's closes
// descriptors by numbers that are ours by now. Into a cgroup by clone3(2): moving there afterwards
// would wait for the whole machine's forks (cgroup_threadgroup_rwsem).
pid_t ForkInto(int cgroup_fd) {
  if (cgroup_fd >= 0) {
    clone_args arguments{};
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = SIGCHLD;
    arguments.cgroup = static_cast<uint64_t>(cgroup_fd);
    const long pid =
        syscall(SYS_clone3, &arguments, sizeof(arguments));  // NOLINT(google-runtime-int)
    if (pid >= 0) return static_cast<pid_t>(pid);
  }
  return _Fork();
}

absl::string_view NameOf(absl::string_view variable) {
  return variable.substr(0, variable.find('='));
}

}  // namespace

std::vector<std::string> ComposeEnvironment(const std::vector<std::string>& inherited,
                                            const std::vector<std::string>& overrides,
                                            const std::vector<std::string>& unset) {
  std::vector<std::string> environment;
  std::map<absl::string_view, size_t> places;  // names point into the arguments
  const auto put = [&](const std::string& variable) {
    const auto [place, added] = places.emplace(NameOf(variable), environment.size());
    if (added) {
      environment.push_back(variable);
    } else {
      environment[place->second] = variable;
    }
  };
  for (const std::string& variable : inherited) {
    if (std::find(unset.begin(), unset.end(), NameOf(variable)) == unset.end()) put(variable);
  }
  for (const std::string& variable : overrides) put(variable);
  return environment;
}

std::vector<std::string> ExecCandidates(const std::string& program,
                                        const std::vector<std::string>& environment) {
  if (program.empty() || absl::StrContains(program, '/')) return {program};
  absl::string_view path = "/bin:/usr/bin";  // confstr(3) _CS_PATH
  for (const std::string& variable : environment) {
    absl::string_view value = variable;
    if (absl::ConsumePrefix(&value, "PATH=")) path = value;
  }
  std::vector<std::string> candidates;
  for (const absl::string_view directory : absl::StrSplit(path, ':')) {
    // An empty entry means the current directory.
    candidates.push_back(directory.empty() ? program : absl::StrCat(directory, "/", program));
  }
  return candidates;
}

const char* StageName(StartError::Stage stage) {
  switch (stage) {
    case StartError::Stage::kFork:
      return "fork";
    case StartError::Stage::kParent:
      return "parent";
    case StartError::Stage::kCpus:
      return "sched_setaffinity";
    case StartError::Stage::kStdout:
      return "stdout";
    case StartError::Stage::kStderr:
      return "stderr";
    case StartError::Stage::kExec:
      return "exec";
  }
  return "start";
}

ExecChildResult StartExecChild(const ExecChildOptions& options) {
  const auto failed = [](int error_number) {
    return ExecChildResult{
        .error = StartError{.stage = StartError::Stage::kFork, .error_number = error_number}};
  };
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC | O_NONBLOCK) != 0) return failed(errno);
  Fd read_end(pipe_fds[0]);
  const Fd write_end(pipe_fds[1]);
  const Prepared prepared{.argv = NullTerminated(options.argv),
                          .environment = NullTerminated(options.environment),
                          .candidates = ExecCandidates(options.argv[0], options.environment),
                          .cpus = CpuMask(options.cpus),
                          .stdout_fd = options.stdout_fd,
                          .stderr_fd = options.stderr_fd,
                          .inherited_fd = options.inherited_fd,
                          .parent = getpid(),
                          .report = write_end.get()};
  const pid_t pid = ForkInto(options.cgroup_fd);
  if (pid < 0) return failed(errno);
  if (pid == 0) RunChild(prepared);
  return {.child = {.pid = pid, .report = std::move(read_end)}};
}

StartReport ReadStartReport(int report) {
  StartError error;
  ssize_t n = 0;
  do {
    n = read(report, &error, sizeof(error));
  } while (n < 0 && errno == EINTR);
  if (n < 0) return {.over = errno != EAGAIN};
  if (n != static_cast<ssize_t>(sizeof(error))) return {.over = true};
  return {.over = true, .error = error};
}

}  // namespace ddprun::launcher
