#ifndef DDPRUN_LAUNCHER_SERVICE_SERVICE_CHILD_H_
#define DDPRUN_LAUNCHER_SERVICE_SERVICE_CHILD_H_

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/event_loop.h"
#include "launcher/service/core/service_restarts.h"
#include "launcher/service/service_process.h"

namespace ddprun::launcher {

// The embedded rendezvous service: a child of the agent, so that its crash doesn't end the workers.
// The first process is forked early, while ours has neither threads nor gRPC, and waits for
// Serve(): whether this agent hosts the service may depend on a name that must be resolved first.
// If the service dies later, this program is executed again as the service, at the same address,
// until ServiceRestarts gives it up.
//
// Ends with its agent. Threads: Fork() before any thread; the rest on the loop.
//
// Why the same port: agents know no other address, so SO_REUSEADDR and retries get it back. The
// agent doesn't keep the listening socket in the meantime: clients would wait in its queue for a
// timeout, but they try a refused connection again at once.
class ServiceChild {
 public:
  // A service that died serves again.
  struct Restarted {
    std::string how;         // how the former process ended: "was killed by SIGKILL"
    absl::Duration missing;  // from its death until the new one listens
    pid_t pid = 0;           // of the new process
    uint64_t times = 0;      // restarts so far
  };
  struct Callbacks {
    // The first start's result: the port (0 for unix sockets), or why the service can't listen.
    // After an error there is no service.
    std::function<void(absl::StatusOr<int> port)> on_ready;
    // A warning for the user.
    std::function<void(std::string text)> on_trouble;
    std::function<void(Restarted restarted)> on_restarted;
    // The service has ended and isn't started again. `how`: "exited with status 0", "was killed by
    // SIGKILL, … and is not started again".
    std::function<void(std::string how)> on_exit;
  };

  // As ServiceProcess::Fork().
  static absl::StatusOr<std::unique_ptr<ServiceChild>> Fork(const std::vector<int>& close_in_child);
  // As ServiceProcess::Spawn(); threads: any.
  static absl::StatusOr<std::unique_ptr<ServiceChild>> Spawn();
  ServiceChild(const ServiceChild&) = delete;
  ServiceChild& operator=(const ServiceChild&) = delete;

  // Makes the process serve; to be called once. `loss`, `deaths_window`: as in ServiceRestarts.
  // on_ready and on_exit may destroy this.
  void Serve(EventLoop* loop, rendezvous::ServeConfig config, absl::Duration loss,
             Callbacks callbacks, absl::Duration deaths_window = ServiceRestarts::kDeathsWindow);

  // Don't restart the service from now on: the job has ended, or the agent ends. If the service is
  // being restarted, on_exit is called at once.
  void StartNoMore();

  // The newest process's pid.
  pid_t pid() const { return pid_; }

 private:
  ServiceChild() = default;
  void Run();
  void StartAgain();
  void OnReady(const absl::StatusOr<ServicePorts>& ports);
  void KeepPorts(const ServicePorts& ports);
  void OnEnd(const ServiceProcess::End& end);
  void OnFailedStart(const absl::Status& error);
  void Decide(const ServiceRestarts::Decision& decision);
  void GiveUp(const std::string& how);

  EventLoop* loop_ = nullptr;
  std::unique_ptr<ServiceProcess> process_;  // null = none runs
  pid_t pid_ = 0;
  rendezvous::ServeConfig config_;  // after the first start with the ports that it got
  Callbacks callbacks_;
  bool served_ = false;  // has served once
  bool wanted_ = true;   // restart it if it dies
  std::unique_ptr<ServiceRestarts> restarts_;
  std::unique_ptr<Timer> start_timer_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SERVICE_SERVICE_CHILD_H_
