#ifndef DDPRUN_LAUNCHER_SERVICE_SERVICE_PROCESS_H_
#define DDPRUN_LAUNCHER_SERVICE_SERVICE_PROCESS_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "rendezvous/server/serve.h"

namespace ddprun::launcher {

// The command of this program that runs the service; only for ServiceProcess::Spawn().
inline constexpr absl::string_view kServiceCommand = "service-process";

// The ports of a service; 0 = none.
struct ServicePorts {
  int service = 0;  // 0 for unix sockets
  int status_page = 0;
};

// One process of the embedded rendezvous service: a child of the agent. The process waits for
// Serve() without using the CPU, and ends with its agent, because it watches a pipe that the
// agent's end closes. Threads: Fork() before any thread; the rest on the loop.
//
// Why forked early: whether this agent hosts the service is known only after a name was resolved,
// which may block for seconds. By then the agent has threads and gRPC, and in such a process only
// exec(2) is safe after a fork. A fork that waits on a pipe costs nothing if it isn't needed; an
// exec(2) at that point would load the program once more before each job's first start.
class ServiceProcess {
 public:
  // `close_in_child`: descriptors of the agent that the child must not hold.
  // The child never returns from here. Errors: of fork(2), pipe2(2).
  static absl::StatusOr<std::unique_ptr<ServiceProcess>> Fork(
      const std::vector<int>& close_in_child);
  // The same from a process that has threads: executes this program again, by /proc/self/exe, so
  // that a binary that was replaced meanwhile isn't used. `store_socket`: inherited by the child,
  // for ServeConfig.store_fd; -1 = none. Errors: of posix_spawn(3), pipe2(2).
  static absl::StatusOr<std::unique_ptr<ServiceProcess>> Spawn(int store_socket = -1);
  ~ServiceProcess();
  ServiceProcess(const ServiceProcess&) = delete;
  ServiceProcess& operator=(const ServiceProcess&) = delete;

  // How the process ended.
  struct End {
    std::string how;        // "exited with status 0", "was killed by SIGKILL"
    bool orderly = false;   // the service had nothing left to do
    bool replaced = false;  // another service has taken over the job
    // Why no other process may resume from its state; "" = one may.
    std::string stale;
  };
  // Makes the process serve, as `config` says but for ready_fd and life_fd; store_fd is the
  // agent's. `on_ready`: its ports, or why it doesn't serve (ALREADY_EXISTS — another service may
  // have the address or the journal); after an error no other callback follows. `on_end`: the
  // process ended after it had served. The two may destroy this.
  void Serve(EventLoop* loop, rendezvous::ServeConfig config,
             std::function<void(absl::StatusOr<ServicePorts> ports)> on_ready,
             std::function<void(End end)> on_end);

  // Makes the service end in order; on_end follows.
  void Stop() { to_child_.Reset(); }

  pid_t pid() const { return pid_; }

 private:
  ServiceProcess() = default;
  absl::Status HoldByPidfd();
  void OnBytes();
  bool ReadAll();
  std::string TakeLine();
  void TakeNews();
  bool NotifyReady(const std::string& how);
  void OnExit();

  pid_t pid_ = 0;
  Fd to_child_;    // settings; its end of file is the child's end
  Fd from_child_;  // as ServeConfig.ready_fd
  Fd pidfd_;       // invalid where pidfds are refused
  bool spawned_ = false;
  bool exited_ = false;
  std::string text_;  // read, but without a line end so far
  std::string stale_;
  std::function<void(absl::StatusOr<ServicePorts>)> on_ready_;  // null after the call
  std::function<void(End)> on_end_;
  std::unique_ptr<FdWatch> ready_watch_;
  std::unique_ptr<FdWatch> exit_watch_;
};

// The body of kServiceCommand: reads settings from stdin, and ends at its end of file; answers on
// stdout.
[[noreturn]] void RunServiceCommand();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SERVICE_SERVICE_PROCESS_H_
