#ifndef DDPRUN_TOOLS_CHAOS_AGENT_PROCESS_H_
#define DDPRUN_TOOLS_CHAOS_AGENT_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/fd.h"

namespace ddprun::launcher {

// One process, held by a pidfd (pidfd_open(2)), so that a signal never reaches another process that
// got the pid later. The descriptor becomes readable when the process ends. Move-only; threads:
// any.
class ProcessHandle {
 public:
  ProcessHandle() = default;
  // Errors: NOT_FOUND — there is no such process.
  static absl::StatusOr<ProcessHandle> Open(pid_t pid);

  // Errors: NOT_FOUND — it has ended; PERMISSION_DENIED. Requires: valid().
  absl::Status Signal(int signal_number) const;

  bool valid() const { return pidfd_.valid(); }
  pid_t pid() const { return pid_; }
  int fd() const { return pidfd_.get(); }

 private:
  pid_t pid_ = 0;
  Fd pidfd_;
};

// The agent under test: this program with the arguments of an ordinary run, as a child.
//
// The agent has a process group of its own: a signal that a terminal or a scheduler sends to our
// group would otherwise reach it twice, because we pass signals on, and a second signal kills the
// workers at once. When we die, the kernel kills the agent, and its keeper ends the workers.
// Threads: the loop's.
class AgentProcess {
 public:
  // `on_end`: its exit status, or minus the signal that killed it.
  // Errors: of fork(2), pidfd_open(2). A failed exec is reported as exit status 127.
  static absl::StatusOr<std::unique_ptr<AgentProcess>> Start(EventLoop* loop,
                                                             const std::vector<std::string>& words,
                                                             std::function<void(int)> on_end);

  pid_t pid() const { return process_.pid(); }
  // Errors: NOT_FOUND — the agent has ended.
  absl::Status Signal(int number) const { return process_.Signal(number); }

 private:
  AgentProcess() = default;
  void OnEnd();

  ProcessHandle process_;
  std::function<void(int)> on_end_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_TOOLS_CHAOS_AGENT_PROCESS_H_
