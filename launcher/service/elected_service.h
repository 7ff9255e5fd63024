#ifndef DDPRUN_LAUNCHER_SERVICE_ELECTED_SERVICE_H_
#define DDPRUN_LAUNCHER_SERVICE_ELECTED_SERVICE_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "launcher/service/service_process.h"
#include "rendezvous/etcd/leader_finder.h"

namespace ddprun::launcher {

// The rendezvous service of a job that keeps its record in etcd: any node can run it. Finds the
// service for this agent, and runs it as a child process while this node is elected. Threads: the
// loop's.
class ElectedService {
 public:
  struct Callbacks {
    std::function<void(int port, pid_t pid)> on_serving;
    // The service that ran here is gone. `how`: "was killed by SIGKILL".
    std::function<void(std::string how)> on_gone;
    // This node begins the job, although one with the same name ended a short time ago. `how`: "the
    // job 'a' has ended (…)…".
    std::function<void(std::string how)> on_begun_again;
    // A warning for the user.
    std::function<void(std::string text)> on_trouble;
  };

  // Params: config: the settings that don't depend on the election; node_address: how agents
  // reach this node. Errors: as rendezvous::LeaderFinder::Create.
  static absl::StatusOr<std::unique_ptr<ElectedService>> Create(
      EventLoop* loop, const rendezvous::EtcdSettings& etcd, rendezvous::ServeConfig config,
      std::string node_id, std::string node_address, Callbacks callbacks);
  ElectedService(const ElectedService&) = delete;
  ElectedService& operator=(const ElectedService&) = delete;

  rendezvous::ServiceLocator* locator() { return finder_.get(); }
  // The agent ends. `job_over`: a service on this node still sends the verdict to the other agents,
  // and ends by itself; else it leaves the job to another node. `done` is called when the service
  // has ended, at once if there is none.
  void End(bool job_over, std::function<void()> done);

 private:
  ElectedService(EventLoop* loop, rendezvous::ServeConfig config, Callbacks callbacks)
      : loop_(loop), config_(std::move(config)), callbacks_(std::move(callbacks)) {}
  void OnElected(const rendezvous::LeaderFinder::Election& election);
  void OnReady(const absl::StatusOr<ServicePorts>& ports);
  void OnEnd(const ServiceProcess::End& end);

  EventLoop* const loop_;
  rendezvous::ServeConfig config_;
  const Callbacks callbacks_;
  std::unique_ptr<rendezvous::LeaderFinder> finder_;
  std::unique_ptr<ServiceProcess> process_;
  bool ending_ = false;
  std::function<void()> on_ended_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_SERVICE_ELECTED_SERVICE_H_
