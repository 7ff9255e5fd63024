#include "launcher/daemon/warden.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/pidfd.h"
#include "base/status_macros.h"
#include "ddprun/daemon/v1/daemon.pb.h"
#include "launcher/daemon/process_facts.h"
#include "launcher/keeper/channel.h"
#include "launcher/keeper/keeper.h"
#include "launcher/os/child_processes.h"

namespace ddprun::launcher {
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
