#ifndef DDPRUN_LAUNCHER_AGENT_SERVICE_CHILD_H_
#define DDPRUN_LAUNCHER_AGENT_SERVICE_CHILD_H_

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

// What the embedded service is told when its agent has found out that it hosts.
struct ServiceSettings {
  std::string listen;  // as ServerOptions.listen
  std::string token;
  std::string run_id;
  std::string event_log;
  std::string status_page;  // as ServeConfig.status_page
};

// The embedded rendezvous service: a child of the agent, so that its death is not the workers'. It
// is forked early, while the process has neither threads nor gRPC, and waits without cost until it
// is told to serve; whether this agent hosts may need a name to be resolved first.
//
// The child lives as long as its agent: the end of the agent closes the pipe that it watches.
// Threads: ForkService before any thread; the rest on the loop.
class ServiceChild {
 public:
  // `close_in_child`: descriptors of the agent that the child must not hold.
  // The child never returns from here. Errors: of fork(2), pipe2(2).
  static absl::StatusOr<std::unique_ptr<ServiceChild>> Fork(const std::vector<int>& close_in_child);
  ~ServiceChild();
  ServiceChild(const ServiceChild&) = delete;
  ServiceChild& operator=(const ServiceChild&) = delete;

  // Tells it to serve. `on_ready`: its port (0 for unix sockets), or why it can't listen.
  // `on_exit`: how it ended: "exited with status 0", "was killed by SIGKILL".
  void Serve(EventLoop* loop, const ServiceSettings& settings,
             std::function<void(absl::StatusOr<int> port)> on_ready,
             std::function<void(std::string how)> on_exit);

  pid_t pid() const { return pid_; }

 private:
  ServiceChild() = default;
  void OnReadyLine();
  void OnExit();

  pid_t pid_ = 0;
  Fd to_child_;    // settings; its end of file is the child's end
  Fd from_child_;  // "ok <port>\n" or "error <text>\n"
  Fd pidfd_;
  bool exited_ = false;
  std::string ready_text_;
  std::function<void(absl::StatusOr<int>)> on_ready_;
  std::function<void(std::string)> on_exit_;
  std::unique_ptr<FdWatch> ready_watch_;
  std::unique_ptr<FdWatch> exit_watch_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_SERVICE_CHILD_H_
