#include "launcher/daemon/warden.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/status_macros.h"
#include "ddprun/daemon/v1/daemon.pb.h"
#include "launcher/daemon/core/spare_shelf.h"
#include "launcher/keeper/channel.h"
#include "launcher/keeper/keeper.h"
#include "launcher/os/files.h"
#include "launcher/os/processes.h"

namespace ddprun::launcher {
namespace {

using daemon::v1::Setup;

constexpr char kOomFile[] = "/proc/self/oom_score_adj";
constexpr size_t kFileBytesMax = 1 << 20;
// More CPUs than any machine has.
constexpr size_t kCpusMax = 1 << 13;
using CpuMask = std::array<cpu_set_t, kCpusMax / CPU_SETSIZE>;

// Lines of /proc/self/status that say what a process may and is.
constexpr const char* kStatusLines[] = {
    "Uid",    "Gid",    "Groups",     "CapInh",  "CapPrm",
    "CapEff", "CapBnd", "NoNewPrivs", "Seccomp", "Mems_allowed_list"};
constexpr const char* kNamespaces[] = {"cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"};

std::string LinkOf(const std::string& path) {
  std::string target(256, '\0');
  const ssize_t n = readlink(path.c_str(), target.data(), target.size());
  target.resize(n < 0 ? 0 : static_cast<size_t>(n));
  return target;
}

std::string PlaceOf(const char* path) {
  struct stat facts {};
  if (stat(path, &facts) != 0) return "";
  return absl::StrCat(facts.st_dev, ":", facts.st_ino);
}

absl::StatusOr<uint32_t> ReadStatus(std::map<std::string, std::string>* facts) {
  DDPRUN_ASSIGN_OR_RETURN(const std::string status, ReadFile("/proc/self/status", kFileBytesMax));
  uint32_t mask = 0;
  for (const absl::string_view line : absl::StrSplit(status, '\n')) {
    const std::pair<std::string, std::string> parts =
        absl::StrSplit(line, absl::MaxSplits(":\t", 1));
    if (parts.first == "Umask") {
      for (const char digit : parts.second) mask = mask * 8 + static_cast<uint32_t>(digit - '0');
    }
    for (const char* name : kStatusLines) {
      if (parts.first == name) (*facts)[name] = parts.second;
    }
  }
  return mask;
}

absl::Status ReadFacts(std::map<std::string, std::string>* facts) {
  for (const char* name : kNamespaces) {
    (*facts)[absl::StrCat(name, " namespace")] = LinkOf(absl::StrCat("/proc/self/ns/", name));
  }
  (*facts)["root folder"] = PlaceOf("/");
  (*facts)["working folder"] = absl::StrCat(LinkOf("/proc/self/cwd"), " ", PlaceOf("."));
  (*facts)["scheduling policy"] = absl::StrCat(sched_getscheduler(0));
  (*facts)["security label"] = std::string(
      absl::StripSuffix(ReadFile("/proc/self/attr/current", kFileBytesMax).value_or(""), "\n"));
  (*facts)["core dump filter"] = ReadFile("/proc/self/coredump_filter", kFileBytesMax).value_or("");
  DDPRUN_ASSIGN_OR_RETURN(const std::string cgroups, ReadFile("/proc/self/cgroup", kFileBytesMax));
  for (const absl::string_view line : absl::StrSplit(cgroups, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> parts = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (parts.size() == 3 && parts[0] != "0") {
      (*facts)[absl::StrCat("cgroup of ", parts[1])] = parts[2];
    }
  }
  return absl::OkStatus();
}

absl::Status SetLimits(const Setup& setup) {
  for (const daemon::v1::Limit& limit : setup.limits()) {
    const rlimit value{.rlim_cur = limit.soft(), .rlim_max = limit.hard()};
    if (setrlimit(static_cast<__rlimit_resource>(limit.resource()), &value) != 0) {
      return ErrnoStatus(errno, absl::StrCat("setrlimit of ", limit.resource()));
    }
  }
  return absl::OkStatus();
}

absl::Status SetScheduling(const Setup& setup) {
  CpuMask cpus{};
  for (const uint32_t cpu : setup.cpus()) {
    if (cpu < kCpusMax) CPU_SET_S(cpu, sizeof(cpus), cpus.data());
  }
  if (sched_setaffinity(0, sizeof(cpus), cpus.data()) != 0) {
    return ErrnoStatus(errno, "sched_setaffinity");
  }
  if (setpriority(PRIO_PROCESS, 0, setup.nice()) != 0) return ErrnoStatus(errno, "setpriority");
  // Not by WriteFile(), because a file of /proc can't be replaced.
  const Fd file(open(kOomFile, O_WRONLY | O_CLOEXEC));
  if (!file.valid()) return ErrnoStatus(errno, absl::StrCat("open ", kOomFile));
  return WriteAll(file.get(), absl::StrCat(setup.oom_score_adj()));
}

}  // namespace

absl::StatusOr<Setup> OwnSetup() {
  Setup setup;
  std::map<std::string, std::string> facts;
  DDPRUN_ASSIGN_OR_RETURN(const uint32_t mask, ReadStatus(&facts));
  DDPRUN_RETURN_IF_ERROR(ReadFacts(&facts));
  setup.set_umask(mask);
  setup.set_folder(LinkOf("/proc/self/cwd"));
  for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
    rlimit value{};
    if (getrlimit(static_cast<__rlimit_resource>(resource), &value) != 0) continue;
    daemon::v1::Limit* limit = setup.add_limits();
    limit->set_resource(resource);
    limit->set_soft(value.rlim_cur);
    limit->set_hard(value.rlim_max);
  }
  setup.set_nice(getpriority(PRIO_PROCESS, 0));
  CpuMask cpus{};
  if (sched_getaffinity(0, sizeof(cpus), cpus.data()) != 0) {
    return ErrnoStatus(errno, "sched_getaffinity");
  }
  for (size_t cpu = 0; cpu < kCpusMax; ++cpu) {
    if (CPU_ISSET_S(cpu, sizeof(cpus), cpus.data())) setup.add_cpus(static_cast<uint32_t>(cpu));
  }
  DDPRUN_ASSIGN_OR_RETURN(const std::string oom, ReadFile(kOomFile, kFileBytesMax));
  int32_t score = 0;
  if (absl::SimpleAtoi(oom, &score)) setup.set_oom_score_adj(score);
  for (auto& [name, value] : facts) (*setup.mutable_facts())[name] = value;
  return setup;
}

absl::Status Become(const Setup& setup) {
  if (chdir(setup.folder().c_str()) != 0) {
    return ErrnoStatus(errno, absl::StrCat("chdir '", setup.folder(), "'"));
  }
  umask(setup.umask());
  DDPRUN_RETURN_IF_ERROR(SetScheduling(setup));
  DDPRUN_RETURN_IF_ERROR(SetLimits(setup));
  DDPRUN_ASSIGN_OR_RETURN(const Setup own, OwnSetup());
  if (const std::string differs =
          Difference(SpareFacts(own.facts().begin(), own.facts().end()),
                     SpareFacts(setup.facts().begin(), setup.facts().end()));
      !differs.empty()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the daemon can't have what the job has: ", differs));
  }
  return absl::OkStatus();
}

std::string ProgramIdentity() {
  struct stat facts {};
  if (stat("/proc/self/exe", &facts) != 0) return "";
  return absl::StrCat(facts.st_dev, ":", facts.st_ino, ":", facts.st_size, ":",
                      facts.st_mtim.tv_sec, ".", facts.st_mtim.tv_nsec);
}

namespace {

// The keeper's isolation timeout until an agent adopts it: only its channel and the warden end it.
constexpr absl::Duration kForever = absl::InfiniteDuration();

Fd TakeSocket() {
  const char* text = std::getenv(kWardenSocket);
  int fd = -1;
  if (text == nullptr || !absl::SimpleAtoi(text, &fd)) return Fd();
  unsetenv(kWardenSocket);
  Fd socket(fd);
  fcntl(fd, F_SETFD, FD_CLOEXEC);
  return socket;
}

// The daemon's terminal or log is none of ours.
void LeaveStreams() {
  const Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) dup2(null.get(), stream);
}

absl::StatusOr<daemon::v1::Setup> ReadSetup(int socket) {
  pollfd wait{.fd = socket, .events = POLLIN, .revents = 0};
  poll(&wait, 1, -1);
  DDPRUN_ASSIGN_OR_RETURN(const std::optional<Message> message, ReceiveMessage(socket));
  daemon::v1::Setup setup;
  if (!message.has_value() || !setup.ParseFromString(message->bytes)) {
    return absl::InvalidArgumentError("the warden got no valid setup");
  }
  return setup;
}

void Report(int socket, const std::string& why_not, pid_t keeper, std::vector<Fd> fds) {
  daemon::v1::WardenReady ready;
  ready.set_why_not(why_not);
  ready.set_keeper_pid(static_cast<uint32_t>(keeper));
  SendQueue(socket).Send(ready.SerializeAsString(), std::move(fds)).IgnoreError();
}

// Reaps what has ended; kills what the keeper left when it is gone. False: nothing is left.
bool ReapAndKill(pid_t keeper, bool* keeper_gone) {
  for (;;) {
    const pid_t ended = waitpid(-1, nullptr, WNOHANG | __WALL);
    if (ended < 0) return false;
    *keeper_gone |= ended == keeper;
    if (ended > 0) continue;
    if (*keeper_gone) {
      // Each death brings new children of ours or none.
      for (const pid_t child : DirectChildren()) KillChildAndGroup(child);
    }
    return true;
  }
}

// Returns when no process below us is left. Requires: SIGCHLD is blocked.
void Outlive(pid_t keeper, int keeper_pidfd, int socket, int child_signals) {
  bool keeper_gone = false;
  bool holder_gone = false;
  while (ReapAndKill(keeper, &keeper_gone)) {
    pollfd fds[] = {{.fd = child_signals, .events = POLLIN, .revents = 0},
                    {.fd = holder_gone ? -1 : socket, .events = POLLIN, .revents = 0}};
    poll(fds, 2, -1);
    signalfd_siginfo ignored{};
    while (read(child_signals, &ignored, sizeof(ignored)) > 0) {
    }
    if (fds[1].revents == 0) continue;
    holder_gone = true;
    syscall(SYS_pidfd_send_signal, keeper_pidfd, SIGCONT, nullptr, 0);
  }
}

absl::Status ForkAndReport(int socket, pid_t* pid) {
  DDPRUN_ASSIGN_OR_RETURN(const daemon::v1::Setup setup, ReadSetup(socket));
  DDPRUN_RETURN_IF_ERROR(Become(setup));
  DDPRUN_ASSIGN_OR_RETURN(KeeperProcess keeper, ForkKeeper({.isolation_timeout = kForever}));
  *pid = keeper.pid;
  std::vector<Fd> fds;
  fds.push_back(std::move(keeper.channel));
  // If one can't be opened, the keeper ends when its channel is closed.
  DDPRUN_ASSIGN_OR_RETURN(Fd of_keeper, OpenPidfd(keeper.pid, "the keeper"));
  DDPRUN_ASSIGN_OR_RETURN(Fd of_warden, OpenPidfd(getpid(), "its warden"));
  fds.push_back(std::move(of_keeper));
  fds.push_back(std::move(of_warden));
  Report(socket, "", keeper.pid, std::move(fds));
  return absl::OkStatus();
}

}  // namespace

int RunWarden() {
  prctl(PR_SET_NAME, "ddprun-warden");
  prctl(PR_SET_PDEATHSIG, 0);  // the daemon's end isn't ours
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  signal(SIGPIPE, SIG_IGN);
  const Fd socket = TakeSocket();
  if (!socket.valid()) return 1;
  LeaveStreams();
  pid_t keeper = 0;
  if (const absl::Status status = ForkAndReport(socket.get(), &keeper); !status.ok()) {
    Report(socket.get(), std::string(status.message()), 0, {});
    if (keeper == 0) return 1;
  }
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);  // only SIGKILL ends us early, as it does a keeper
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  const absl::StatusOr<Fd> keeper_pidfd = OpenPidfd(keeper, "the keeper");
  const Fd child_signals(signalfd(-1, &child_signal, SFD_CLOEXEC | SFD_NONBLOCK));
  Outlive(keeper, keeper_pidfd.ok() ? keeper_pidfd->get() : -1, socket.get(), child_signals.get());
  return 0;
}

}  // namespace ddprun::launcher
