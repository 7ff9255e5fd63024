#ifndef DDPRUN_LAUNCHER_SERVICE_SERVICE_PROCESS_H_
#define DDPRUN_LAUNCHER_SERVICE_SERVICE_PROCESS_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "base/tls_files.h"
#include "rendezvous/server/etcd_seat.h"

namespace ddprun::launcher {

// The command of this program that is the service: for ServiceProcess::Spawn() alone.
inline constexpr absl::string_view kServiceCommand = "service-process";

// What the embedded service is told when its agent has found out that it hosts.
struct ServiceSettings {
  std::string listen;  // as ServerOptions.listen
  std::string socket;  // as ServerOptions.socket
  std::string token;
  TlsFiles tls;  // as ServerOptions.tls
  std::string run_id;
  std::string event_log;
  std::string status_page;                         // as ServeConfig.status_page
  std::string status_page_token;                   // as ServeConfig.status_page_token
  std::string state_dir;                           // as ServeConfig.state_dir
  bool state_outlives_machine = false;             // as ServeConfig.state_outlives_machine
  uint64_t host = 0;                               // as ServeConfig.host
  bool again = false;                              // as ServeConfig.again
  int store_socket = -1;                           // the agent's number of ServeConfig.store_fd
  std::optional<rendezvous::EtcdSeatConfig> etcd;  // as ServeConfig.etcd
};

// Where a service listens; 0 = at none.
struct ServicePorts {
  int service = 0;  // 0 also for unix sockets
  int status_page = 0;
};

// One process of the embedded rendezvous service: a child of the agent. It waits without cost until
// it is told to serve, and lives as long as its agent, whose end closes the pipe that it watches.
// Threads: Fork() before any thread; the rest on the loop.
//
// Why forked early: whether this agent hosts is known only after a name was resolved, which may
// block for seconds, and by then the agent has threads and gRPC, beside which only exec(2) is safe.
// A fork that waits on a pipe costs nothing if it isn't needed; an exec(2) at that point would load
// the program once more before each job's first start.
class ServiceProcess {
 public:
  // `close_in_child`: descriptors of the agent that the child must not hold.
  // The child never returns from here. Errors: of fork(2), pipe2(2).
  static absl::StatusOr<std::unique_ptr<ServiceProcess>> Fork(
      const std::vector<int>& close_in_child);
  // The same for a process that has threads: executes this program anew. A binary that was replaced
  // in between is still the old one. `store_socket`: the child gets it, for
  // ServiceSettings.store_socket; -1 = none.
  // Errors: of posix_spawn(3), pipe2(2).
  static absl::StatusOr<std::unique_ptr<ServiceProcess>> Spawn(int store_socket = -1);
  ~ServiceProcess();
  ServiceProcess(const ServiceProcess&) = delete;
  ServiceProcess& operator=(const ServiceProcess&) = delete;

  // How it ended.
  struct End {
    std::string how;        // "exited with status 0", "was killed by SIGKILL"
    bool orderly = false;   // it had nothing left to do
    bool replaced = false;  // another service has the job
    // Why no other process may go on from what it has kept; "" = one may.
    std::string stale;
  };
  // Tells it to serve. `on_ready`: its ports, or why it doesn't serve (ALREADY_EXISTS — another one
  // may have the address or the journal); after an error nothing else
  // comes. `on_end`: after it served. Both may destroy this.
  void Serve(EventLoop* loop, const ServiceSettings& settings,
             std::function<void(absl::StatusOr<ServicePorts> ports)> on_ready,
             std::function<void(End end)> on_end);

  // Has it end in order; on_end follows.
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
  std::string text_;  // that has come, and is no whole line yet
  std::string stale_;
  std::function<void(absl::StatusOr<ServicePorts>)> on_ready_;  // null when it was called
  std::function<void(End)> on_end_;
  std::unique_ptr<FdWatch> ready_watch_;
  std::unique_ptr<FdWatch> exit_watch_;
};

// The body of kServiceCommand: settings come on stdin, whose end is ours; the answer goes to
// stdout.
[[noreturn]] void RunServiceCommand();

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SERVICE_SERVICE_PROCESS_H_
