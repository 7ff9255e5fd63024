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

// The embedded rendezvous service: a child of the agent, so that its death is not the workers'. The
// first process of it is forked early, while ours has neither threads nor gRPC, and waits until it
// is told to serve; whether this agent hosts may need a name to be resolved first. One that dies
// after that is started again at the same address, by executing this program, until
// ServiceRestarts gives it up.
//
// It lives as long as its agent. Threads: Fork() before any thread; the rest on the loop.
//
// Why the same port: agents know no other address, so SO_REUSEADDR and retries get it back. The
// agent doesn't keep the listening socket meanwhile: clients would wait in its queue for a timeout,
// where a refused connection is tried again at once.
class ServiceChild {
 public:
  // A service that died is there again.
  struct Restarted {
    std::string how;         // the former process ended: "was killed by SIGKILL"
    absl::Duration missing;  // from its death to where the new one listens
    pid_t pid = 0;           // of the new one
    uint64_t times = 0;      // that it was started again so far
  };
  struct Callbacks {
    // Of the first start: its port (0 for unix sockets), or why it can't listen, which is the end.
    std::function<void(absl::StatusOr<int> port)> on_ready;
    // A warning for the user.
    std::function<void(std::string text)> on_trouble;
    std::function<void(Restarted restarted)> on_restarted;
    // It is gone for good. `how`: "exited with status 0", "was killed by SIGKILL, … and is not
    // started again".
    std::function<void(std::string how)> on_exit;
  };

  // As ServiceProcess::Fork().
  static absl::StatusOr<std::unique_ptr<ServiceChild>> Fork(const std::vector<int>& close_in_child);
  ServiceChild(const ServiceChild&) = delete;
  ServiceChild& operator=(const ServiceChild&) = delete;

  // Tells it to serve. `loss`: for how long its loss is borne; `deaths_window`: as in
  // ServiceRestarts. Once. on_ready and on_exit may destroy this.
  void Serve(EventLoop* loop, ServiceSettings settings, absl::Duration loss, Callbacks callbacks,
             absl::Duration deaths_window = ServiceRestarts::kDeathsWindow);

  // From now on nobody needs a new one: the job has ended, or the agent ends. If it is being
  // started again, on_exit comes at once.
  void StartNoMore();

  // Of the newest process.
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
  std::unique_ptr<ServiceProcess> process_;  // null: none runs
  pid_t pid_ = 0;
  ServiceSettings settings_;  // from the first start on with the ports that were found
  Callbacks callbacks_;
  bool served_ = false;  // once
  bool wanted_ = true;   // it is started again
  std::unique_ptr<ServiceRestarts> restarts_;
  std::unique_ptr<Timer> start_timer_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SERVICE_SERVICE_CHILD_H_
