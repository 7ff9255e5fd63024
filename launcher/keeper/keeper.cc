#include "launcher/keeper/keeper.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <csignal>
#include <string>
#include <utility>
#include <vector>

#include "base/errno_status.h"
#include "base/fd.h"
#include "base/glibc/later_functions.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "launcher/keeper/agent_seat.h"
#include "launcher/keeper/keeper_loop.h"
#include "launcher/os/cgroup.h"
#include "launcher/os/files.h"

namespace ddprun::launcher {
namespace {

// Closes all descriptors but 0-2 and `kept`, and opens what is missing of 0-2, so that no later one
// gets such a number.
void KeepOnlyStandardStreamsAnd(std::vector<int> kept) {
  std::sort(kept.begin(), kept.end());
  int first = STDERR_FILENO + 1;
  for (const int fd : kept) {
    if (fd < first) continue;
    glibc::CloseRange(static_cast<unsigned>(first), static_cast<unsigned>(fd) - 1, 0);
    first = fd + 1;
  }
  glibc::CloseRange(static_cast<unsigned>(first), UINT_MAX, 0);
  FillStandardStreams();
}

// Workers inherit what is ignored; all else is reset by exec(2). The keeper writes what is left of
// their output, so it goes on ignoring SIGXFSZ, which RunChild() resets. SIGUSR1 and SIGUSR2 stay
// ignored, as under torchrun: `trap '' USR1` covers the workers.
void ResetIgnoredSignals() {
  for (int number = 1; number <= SIGRTMAX; ++number) {
    if (number == SIGXFSZ || number == SIGUSR1 || number == SIGUSR2) continue;
    struct sigaction action {};
    if (sigaction(number, nullptr, &action) != 0 || action.sa_handler != SIG_IGN) continue;
    action.sa_handler = SIG_DFL;
    sigaction(number, &action, nullptr);
  }
}

// A pidfd of the agent. The channel alone doesn't show its end: a forked child of the agent may
// hold the channel open.
Fd OpenAgent(pid_t agent) {
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, agent, 0)));
  // If the agent is still our parent, the pidfd can't be that of a later process with the same pid.
  if (getppid() != agent) _exit(0);
  return pidfd;
}

// Requires: all signals are blocked.
[[noreturn]] void RunKeeper(pid_t agent, Fd channel, const KeeperOptions& options) {
  setsid();
  // A stopped keeper is continued when its agent dies, because only the keeper ends the workers
  // then.
  prctl(PR_SET_PDEATHSIG, SIGCONT);
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  ShowAgent(agent);
  KeepOnlyStandardStreamsAnd({channel.get(), options.held_fd});
  ResetIgnoredSignals();
  RaiseDescriptorLimit();  // for the ends of many workers' streams; workers keep the user's
  sigset_t child_signal;
  sigemptyset(&child_signal);
  sigaddset(&child_signal, SIGCHLD);
  Fd child_signals(signalfd(-1, &child_signal, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!child_signals.valid()) {
    Log(LogLevel::kError, ErrnoStatus(errno, "signalfd in the keeper").message());
    _exit(1);
  }
  AgentSeat seat{.pidfd = OpenAgent(agent),
                 .options = options,
                 .environment = OwnEnvironment(),
                 .cgroup = WorkerCgroup(options.cgroup)};
  KeeperLoop loop(std::move(channel), std::move(seat), std::move(child_signals));
  loop.Run();
  const KeeperOptions& left = loop.options();
  WorkerCgroup(left.cgroup).Remove();
  RemoveFolder(left.remove_folder);
  RemoveEmptyFolders(left.remove_empty_folders);
  _exit(0);  // nothing of the agent's may be flushed or destroyed twice
}

}  // namespace

absl::StatusOr<KeeperProcess> ForkKeeper(const KeeperOptions& options) {
  DDPRUN_ASSIGN_OR_RETURN(FdPair pair, MakeMessagePair());
  // If the agent runs with 0-2 closed, the channel may have one of these numbers. Move it away.
  Fd keeper_end(fcntl(pair.second.get(), F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
  if (!keeper_end.valid()) return ErrnoStatus(errno, "duplicate the keeper's channel");
  pair.second.Reset();

  // Blocked before the fork, so that no signal meets the child unprepared.
  const pid_t agent = getpid();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t pid = _Fork();  // without the fork handlers of libraries; see StartExecChild()
  const int error = errno;
  if (pid == 0) {
    pair.first.Reset();
    RunKeeper(agent, std::move(keeper_end), options);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return ErrnoStatus(error, "fork of the keeper");
  return KeeperProcess{.pid = pid,
                       .channel = std::move(pair.first),
                       .cgroup = options.cgroup,
                       .isolation_timeout = options.isolation_timeout};
}

}  // namespace ddprun::launcher
