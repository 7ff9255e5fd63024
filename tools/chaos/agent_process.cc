#include "tools/chaos/agent_process.h"

#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/fd.h"
#include "base/null_terminated.h"
#include "base/status_macros.h"
#include "base/text.h"

namespace ddprun::launcher {
absl::StatusOr<ProcessHandle> ProcessHandle::Open(pid_t pid) {
  ProcessHandle handle;
  handle.pid_ = pid;
  DDPRUN_ASSIGN_OR_RETURN(handle.pidfd_, OpenPidfd(pid, absl::StrCat("process ", pid)));
  return handle;
}

absl::Status ProcessHandle::Signal(int signal_number) const {
  if (syscall(SYS_pidfd_send_signal, pidfd_.get(), signal_number, nullptr, 0) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat(SignalName(signal_number), " to process ", pid_));
}

namespace {

// The child, between fork and exec: only calls of signal-safety(7).
[[noreturn]] void RunAgent(pid_t parent, const sigset_t& mask, char* const* argv) {
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(127);  // it died before the call
  for (int number = 1; number < NSIG; ++number) {
    struct sigaction action {};
    // An ignored signal stays ignored (nohup); our handlers must not run in the child.
    if (sigaction(number, nullptr, &action) == 0 && action.sa_handler != SIG_IGN) {
      signal(number, SIG_DFL);
    }
  }
  sigprocmask(SIG_SETMASK, &mask, nullptr);
  execv("/proc/self/exe", argv);
  _exit(127);
}

}  // namespace

absl::StatusOr<std::unique_ptr<AgentProcess>> AgentProcess::Start(
    EventLoop* loop, const std::vector<std::string>& words, std::function<void(int)> on_end) {
  std::vector<std::string> owned = {"ddprun"};
  owned.insert(owned.end(), words.begin(), words.end());
  const std::vector<char*> argv = NullTerminated(owned);
  const pid_t parent = getpid();
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, &before);
  const pid_t pid = fork();
  if (pid == 0) RunAgent(parent, before, argv.data());
  const int error = errno;
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (pid < 0) return ErrnoStatus(error, "fork of the agent");
  std::unique_ptr<AgentProcess> agent(new AgentProcess());
  // Only we reap the child, so the pid can't have been reused.
  DDPRUN_ASSIGN_OR_RETURN(agent->process_, ProcessHandle::Open(pid));
  agent->on_end_ = std::move(on_end);
  AgentProcess* self = agent.get();
  agent->watch_ = std::make_unique<FdWatch>(loop, agent->process_.fd(), [self] { self->OnEnd(); });
  return agent;
}

void AgentProcess::OnEnd() {
  siginfo_t info{};
  if (waitid(P_PIDFD, static_cast<id_t>(process_.fd()), &info, WEXITED | WNOHANG) != 0 ||
      info.si_pid == 0) {
    return;
  }
  watch_.reset();
  const auto on_end = std::move(on_end_);  // may destroy this
  on_end(info.si_code == CLD_EXITED ? info.si_status : -info.si_status);
}

}  // namespace ddprun::launcher
