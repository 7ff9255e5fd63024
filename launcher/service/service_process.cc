#include "launcher/service/service_process.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/core/signal_policy.h"
#include "launcher/output/console.h"

// What an agent sends to its service.
namespace ddprun {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(TlsFiles, ca, certificate, key)
}
namespace ddprun::rendezvous {
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(EtcdSettings, endpoints, prefix, user, password,
                                                tls, ca_file, cert_file, key_file)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(EtcdSeatConfig, settings, run_id, node_id,
                                                node_address, lease, revision, asked_ns, ttl_s,
                                                vanished)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE_WITH_DEFAULT(ServeConfig, listen, socket, token, tls,
                                                only_run_id, event_log, status_page,
                                                status_page_token, state_dir,
                                                state_outlives_machine, host, again, store_fd)
}  // namespace ddprun::rendezvous

namespace ddprun::launcher {
namespace {

// The most unparsed text of a service that is kept.
constexpr size_t kTextMax = 65536;
// The descriptor number of ServeConfig.store_fd in a spawned service.
constexpr int kStoreFd = STDERR_FILENO + 1;

// Reads one line from a blocking descriptor; "" when it ends before.
std::string ReadLine(int fd) {
  std::string line;
  char byte = 0;
  for (;;) {
    const ssize_t n = read(fd, &byte, 1);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return "";
    if (byte == '\n') return line;
    line += byte;
  }
}

std::string ConfigLine(const rendezvous::ServeConfig& config) {
  nlohmann::json line = config;
  if (config.etcd.has_value()) line["etcd"] = *config.etcd;
  return absl::StrCat(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "\n");
}

// The child: waits for its settings, then serves until the agent's end of the pipe closes.
[[noreturn]] void RunChild(Fd settings_pipe, Fd ready_pipe) {
  prctl(PR_SET_NAME, "ddprun-service");
  // A terminal's Ctrl-C reaches the whole foreground group; the agent decides what it means.
  // So does a scheduler's TERM to all processes of a job; the end of the pipe is what ends it.
  for (const int number : {SIGINT, SIGHUP, SIGQUIT, SIGTERM}) signal(number, SIG_IGN);
  for (const int number : PassedOnSignals()) signal(number, SIG_IGN);
  sigset_t none;  // one that was spawned begins with all of them blocked
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  const std::string line = ReadLine(settings_pipe.get());
  if (line.empty()) _exit(0);  // not needed
  const nlohmann::json settings = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!settings.is_object()) _exit(2);
  auto config = settings.get<rendezvous::ServeConfig>();
  if (settings.contains("etcd")) settings["etcd"].get_to(config.etcd.emplace());
  config.ready_fd = ready_pipe.get();
  config.life_fd = settings_pipe.get();
  // A console that isn't read must not block the service; lines that it doesn't accept are lost.
  SetLogWriter([console = std::make_shared<ConsoleSink>(STDERR_FILENO)](absl::string_view lines) {
    console->Write(lines);
  });
  _exit(rendezvous::ServeMain(config));
}

std::string DescribeExit(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return absl::StrCat("exited with status ", info.si_status);
  return absl::StrCat("was killed by ", SignalName(info.si_status));
}

// Executes this program with the two descriptors as stdin and stdout, and with `store` as kStoreFd
// unless it is -1. Returns 0 or an errno.
int SpawnThisProgram(int settings, int ready, int store, pid_t* pid) {
  posix_spawn_file_actions_t files;
  posix_spawnattr_t attributes;
  posix_spawn_file_actions_init(&files);
  posix_spawnattr_init(&attributes);
  posix_spawn_file_actions_adddup2(&files, settings, STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&files, ready, STDOUT_FILENO);
  // All of ours are close-on-exec already; this is for what a library may have opened.
  if (store >= 0) posix_spawn_file_actions_adddup2(&files, store, kStoreFd);
  posix_spawn_file_actions_addclosefrom_np(&files, store >= 0 ? kStoreFd + 1 : kStoreFd);
  // Signals are blocked until the service ignores them: one to the whole group would end it.
  sigset_t all;
  sigfillset(&all);
  posix_spawnattr_setsigmask(&attributes, &all);
  posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  char name[] = "ddprun";
  std::string command(kServiceCommand);
  char* const arguments[] = {name, command.data(), nullptr};
  const int error = posix_spawn(pid, "/proc/self/exe", &files, &attributes, arguments, environ);
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

// Moves a pipe's end beyond 0-2, which it may have if the agent runs with these closed.
absl::Status MoveUp(Fd* fd) {
  if (fd->get() > STDERR_FILENO) return absl::OkStatus();
  fd->Reset(fcntl(fd->get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  return fd->valid() ? absl::OkStatus() : ErrnoStatus(errno, "a pipe to the rendezvous service");
}

}  // namespace

void RunServiceCommand() { RunChild(Fd(STDIN_FILENO), Fd(STDOUT_FILENO)); }

absl::StatusOr<std::unique_ptr<ServiceProcess>> ServiceProcess::Fork(
    const std::vector<int>& close_in_child) {
  DDPRUN_ASSIGN_OR_RETURN(FdPair settings, MakePipe());
  DDPRUN_ASSIGN_OR_RETURN(FdPair ready, MakePipe());
  const pid_t pid = fork();
  if (pid < 0) return ErrnoStatus(errno, "fork of the rendezvous service");
  if (pid == 0) {
    for (const int fd : close_in_child) close(fd);
    settings.second.Reset();
    ready.first.Reset();
    RunChild(std::move(settings.first), std::move(ready.second));
  }
  std::unique_ptr<ServiceProcess> process(new ServiceProcess());
  process->pid_ = pid;
  process->to_child_ = std::move(settings.second);
  process->from_child_ = std::move(ready.first);
  DDPRUN_RETURN_IF_ERROR(process->HoldByPidfd());
  return process;
}

absl::StatusOr<std::unique_ptr<ServiceProcess>> ServiceProcess::Spawn(int store_socket) {
  DDPRUN_ASSIGN_OR_RETURN(FdPair settings, MakePipe());
  DDPRUN_ASSIGN_OR_RETURN(FdPair ready, MakePipe());
  DDPRUN_RETURN_IF_ERROR(MoveUp(&settings.first));
  DDPRUN_RETURN_IF_ERROR(MoveUp(&ready.second));
  std::unique_ptr<ServiceProcess> process(new ServiceProcess());
  pid_t pid = 0;
  process->spawned_ = true;
  if (const int error =
          SpawnThisProgram(settings.first.get(), ready.second.get(), store_socket, &pid);
      error != 0) {
    process->exited_ = true;  // there is none
    return ErrnoStatus(error, "the rendezvous service: executing /proc/self/exe");
  }
  process->pid_ = pid;
  process->to_child_ = std::move(settings.second);
  process->from_child_ = std::move(ready.first);
  DDPRUN_RETURN_IF_ERROR(process->HoldByPidfd());
  return process;
}

// Nobody but us reaps, so the pid can't have been reused. Where the kernel or a filter refuses
// pidfds, the end of its pipe stands for the end of the service, which has the only other end.
absl::Status ServiceProcess::HoldByPidfd() {
  absl::StatusOr<Fd> pidfd = OpenPidfd(pid_, "the rendezvous service");
  if (pidfd.ok()) {
    pidfd_ = *std::move(pidfd);
  } else if (absl::IsUnimplemented(pidfd.status()) || absl::IsPermissionDenied(pidfd.status())) {
    Log(LogLevel::kInfo, pidfd.status().message());
  } else {
    return pidfd.status();
  }
  return absl::OkStatus();
}

ServiceProcess::~ServiceProcess() {
  ready_watch_.reset();
  exit_watch_.reset();
  to_child_.Reset();
  if (exited_) return;
  // The service ends at the end of file above. Kill it in case it doesn't.
  if (pidfd_.valid()) syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  waitpid(pid_, nullptr, 0);
}

void ServiceProcess::Serve(EventLoop* loop, rendezvous::ServeConfig config,
                           std::function<void(absl::StatusOr<ServicePorts> ports)> on_ready,
                           std::function<void(End end)> on_end) {
  on_ready_ = std::move(on_ready);
  on_end_ = std::move(on_end);
  fcntl(from_child_.get(), F_SETFL, O_NONBLOCK);
  ready_watch_ = std::make_unique<FdWatch>(loop, from_child_.get(), [this] { OnBytes(); });
  if (pidfd_.valid()) {
    exit_watch_ = std::make_unique<FdWatch>(loop, pidfd_.get(), [this] { OnExit(); });
  }
  // A forked child has the agent's descriptors under the agent's numbers. If the child is gone,
  // exit_watch_ reports it.
  if (spawned_ && config.store_fd >= 0) config.store_fd = kStoreFd;
  const absl::Status written = WriteAll(to_child_.get(), ConfigLine(config));
  if (!written.ok()) Log(LogLevel::kWarning, written.ToString());
}

void ServiceProcess::OnBytes() {
  if (!ReadAll()) {
    ready_watch_.reset();  // end of file; OnExit() reports how the service ended
    if (!pidfd_.valid() && text_.size() < kTextMax) return OnExit();
  }
  if (on_ready_ != nullptr && absl::StrContains(text_, '\n')) NotifyReady("");
}

// Reads the lines of a service that serves.
void ServiceProcess::TakeNews() {
  for (std::string line = TakeLine(); !line.empty(); line = TakeLine()) {
    absl::string_view text = line;
    if (absl::ConsumePrefix(&text, "stale ")) stale_ = std::string(text);
  }
}

// Reads the available text. Returns false at end of file, or if the text is too long.
bool ServiceProcess::ReadAll() {
  char bytes[512];
  while (text_.size() < kTextMax) {
    const ssize_t n = read(from_child_.get(), bytes, sizeof(bytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return n < 0 && errno == EAGAIN;
    text_.append(bytes, static_cast<size_t>(n));
  }
  return false;
}

// The next line without its newline; "" = none.
std::string ServiceProcess::TakeLine() {
  const size_t end = text_.find('\n');
  if (end == std::string::npos) return "";
  std::string line = text_.substr(0, end);
  text_.erase(0, end + 1);
  return line;
}

// Reports the service's answer, or its death before (`how`). Returns: whether it serves; if not,
// the callback may have destroyed this.
bool ServiceProcess::NotifyReady(const std::string& how) {
  const std::string line = TakeLine();
  absl::string_view text = line;
  ServicePorts ports;
  const auto on_ready = std::exchange(on_ready_, nullptr);
  if (absl::ConsumePrefix(&text, "ok ")) {
    const std::pair<absl::string_view, absl::string_view> both =
        absl::StrSplit(text, absl::MaxSplits(' ', 1));
    if (absl::SimpleAtoi(both.first, &ports.service) &&
        absl::SimpleAtoi(both.second, &ports.status_page)) {
      on_ready(ports);
      return true;
    }
  }
  exit_watch_.reset();
  if (absl::ConsumePrefix(&text, "taken ")) {
    on_ready(absl::AlreadyExistsError(text));
    return false;
  }
  absl::ConsumePrefix(&text, "error ");
  const std::string error = text.empty()
                                ? absl::StrCat("the rendezvous service ", how, " before it served")
                                : std::string(text);
  on_ready(absl::UnavailableError(error));
  return false;
}

void ServiceProcess::OnExit() {
  siginfo_t info{};
  const int options = pidfd_.valid() ? WEXITED | WNOHANG : WEXITED;  // else it is just ending
  int waited = 0;
  do {
    waited = waitid(P_PID, static_cast<id_t>(pid_), &info, options);
  } while (waited != 0 && errno == EINTR);
  if (waited != 0 || info.si_pid == 0) return;
  exited_ = true;
  exit_watch_.reset();
  if (ready_watch_ != nullptr) ReadAll();
  ready_watch_.reset();
  const bool exited = info.si_code == CLD_EXITED;
  const bool orderly = exited && info.si_status == 0;
  const bool replaced = exited && info.si_status == rendezvous::kLeadershipLost;
  const std::string how =
      replaced ? "lost the job: another service has it, or etcd (if used) doesn't answer"
               : DescribeExit(info);
  if (on_ready_ != nullptr && !NotifyReady(how)) return;
  TakeNews();
  const auto on_end = on_end_;
  on_end({.how = how, .orderly = orderly, .replaced = replaced, .stale = stale_});
}

}  // namespace ddprun::launcher
