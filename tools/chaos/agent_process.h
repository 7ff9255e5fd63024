#ifndef DDPRUN_TOOLS_CHAOS_AGENT_PROCESS_H_
#define DDPRUN_TOOLS_CHAOS_AGENT_PROCESS_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "launcher/os/process_handle.h"

namespace ddprun::launcher {

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
