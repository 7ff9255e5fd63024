#include "launcher/agent/service_child.h"

#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/errno_status.h"
#include "base/log.h"
#include "base/signal_name.h"
#include "base/status_macros.h"
#include "launcher/core/signal_policy.h"
#include "rendezvous/server/serve.h"

namespace ddprun::launcher {
namespace {

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

// The child: waits for its settings, then serves until the agent's end of the pipe closes.
[[noreturn]] void RunChild(Fd settings_pipe, Fd ready_pipe) {
  prctl(PR_SET_NAME, "ddprun-service");
  // A terminal's Ctrl-C reaches the whole foreground group; the agent decides what it means.
  // So does a scheduler's TERM to all processes of a job; the end of the pipe is what ends it.
  for (const int number : {SIGINT, SIGHUP, SIGQUIT, SIGTERM}) signal(number, SIG_IGN);
  for (const int number : PassedOnSignals()) signal(number, SIG_IGN);
  const std::string line = ReadLine(settings_pipe.get());
  if (line.empty()) _exit(0);  // not needed
  const nlohmann::json settings = nlohmann::json::parse(line, nullptr, /*allow_exceptions=*/false);
  if (!settings.is_object()) _exit(2);
  rendezvous::ServeConfig config;
  config.listen = settings.value("listen", "");
  config.token = settings.value("token", "");
  config.only_run_id = settings.value("run_id", "");
  config.event_log = settings.value("event_log", "");
  config.status_page = settings.value("status_page", "");
  config.ready_fd = ready_pipe.get();
  config.life_fd = settings_pipe.get();
  _exit(rendezvous::ServeMain(config));
}

std::string DescribeExit(const siginfo_t& info) {
  if (info.si_code == CLD_EXITED) return absl::StrCat("exited with status ", info.si_status);
  return absl::StrCat("was killed by ", SignalName(info.si_status));
}

}  // namespace

absl::StatusOr<std::unique_ptr<ServiceChild>> ServiceChild::Fork(
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
  std::unique_ptr<ServiceChild> child(new ServiceChild());
  child->pid_ = pid;
  child->to_child_ = std::move(settings.second);
  child->from_child_ = std::move(ready.first);
  // Nobody but us reaps, so the pid can't have been reused.
  child->pidfd_.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (!child->pidfd_.valid()) return ErrnoStatus(errno, "pidfd_open of the rendezvous service");
  return child;
}

ServiceChild::~ServiceChild() {
  ready_watch_.reset();
  exit_watch_.reset();
  to_child_.Reset();
  if (exited_) return;
  // It ends at the end of file above; a service that doesn't has lost its reason to live too.
  if (pidfd_.valid()) syscall(SYS_pidfd_send_signal, pidfd_.get(), SIGKILL, nullptr, 0);
  waitpid(pid_, nullptr, 0);
}

void ServiceChild::Serve(EventLoop* loop, const ServiceSettings& settings,
                         std::function<void(absl::StatusOr<int> port)> on_ready,
                         std::function<void(std::string how)> on_exit) {
  on_ready_ = std::move(on_ready);
  on_exit_ = std::move(on_exit);
  ready_watch_ = std::make_unique<FdWatch>(loop, from_child_.get(), [this] { OnReadyLine(); });
  exit_watch_ = std::make_unique<FdWatch>(loop, pidfd_.get(), [this] { OnExit(); });
  const nlohmann::json line = {{"listen", settings.listen},
                               {"token", settings.token},
                               {"run_id", settings.run_id},
                               {"event_log", settings.event_log},
                               {"status_page", settings.status_page}};
  const absl::Status written = WriteAll(
      to_child_.get(),
      absl::StrCat(line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace), "\n"));
  // A child that is gone is told of by exit_watch_.
  if (!written.ok()) Log(LogLevel::kWarning, written.ToString());
}

void ServiceChild::OnReadyLine() {
  char bytes[512];
  const ssize_t n = read(from_child_.get(), bytes, sizeof(bytes));
  if (n < 0 && errno == EINTR) return;
  if (n > 0) ready_text_.append(bytes, static_cast<size_t>(n));
  const size_t end = ready_text_.find('\n');
  if (n > 0 && end == std::string::npos) return;
  ready_watch_.reset();
  absl::string_view text = absl::string_view(ready_text_).substr(0, end);
  int port = 0;
  const auto on_ready = std::exchange(on_ready_, nullptr);
  if (absl::ConsumePrefix(&text, "ok ") && absl::SimpleAtoi(text, &port)) return on_ready(port);
  absl::ConsumePrefix(&text, "error ");
  on_ready(absl::UnavailableError(text.empty() ? "the rendezvous service died at its start"
                                               : std::string(text)));
}

void ServiceChild::OnExit() {
  siginfo_t info{};
  if (waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid == 0) {
    return;
  }
  exited_ = true;
  exit_watch_.reset();
  const auto on_exit = on_exit_;
  on_exit(DescribeExit(info));
}

}  // namespace ddprun::launcher
