#ifndef DDPRUN_LAUNCHER_AGENT_SERVICE_HOST_H_
#define DDPRUN_LAUNCHER_AGENT_SERVICE_HOST_H_

#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "launcher/core/launch_plan.h"
#include "launcher/core/supervisor/supervisor_events.h"
#include "launcher/os/runtime_dir.h"
#include "launcher/service/elected_service.h"
#include "launcher/service/endpoint_finder.h"
#include "launcher/service/service_child.h"
#include "nlohmann/json.hpp"
#include "rendezvous/core/identifiers.h"

namespace ddprun::launcher {

// Finds the job's rendezvous service, or runs it on this node: as a child at the endpoint, or, with
// etcd, while this node is elected. Threads: Fork() before any thread; the rest on the loop.
class ServiceHost {
 public:
  // How this node reaches the service.
  struct Target {
    std::string address;  // gRPC's; "" = locator() knows it
    FoundEndpoint found;
    bool hosts = false;          // the service is this node's
    bool port_is_taken = false;  // another agent of this machine has it
  };
  struct Node {
    std::string id;
    rendezvous::Incarnation incarnation;
    const RuntimeDir* folder = nullptr;  // outlives this
    int store_socket = -1;               // MasterStore::service_socket()
  };
  struct Hooks {
    std::function<void(const Target&)> connect;  // called once, and once after HostAlone()
    std::function<void(const SupervisorEvent&)> feed;
    // This node can't serve the job. The last call.
    std::function<void(const absl::Status&)> fail;
    // Writes an event to the event log.
    std::function<void(const std::string& event, const nlohmann::json& fields)> write;
  };

  // `plan` outlives this.
  explicit ServiceHost(const LaunchPlan* plan) : plan_(*plan) {}
  ServiceHost(const ServiceHost&) = delete;
  ServiceHost& operator=(const ServiceHost&) = delete;

  // As ServiceChild::Fork(), if this node may run the service at the endpoint.
  absl::Status Fork(const std::vector<int>& close_in_child);
  // Whether Fork() made a child.
  bool has_child() const { return child_ != nullptr; }
  bool IsChild(pid_t pid) const { return child_ != nullptr && child_->pid() == pid; }

  // Begins the search. Called once.
  void Start(EventLoop* loop, Node node, Hooks hooks);
  // A job of one node whose endpoint can't be had: runs the service at a unix socket. After the
  // plan's endpoint has become one.
  void HostAlone();
  // The job is ending: a service that dies isn't started again.
  void StartNoMore();
  // The agent ends (ElectedService::End). `done` may be called at once.
  void End(bool job_over, std::function<void()> done);

  // Whether the service has no address of its own, but is elected.
  bool elected() const { return elected_ != nullptr; }
  // Null = the service is at Target::address.
  rendezvous::ServiceLocator* locator() const {
    return elected_ == nullptr ? nullptr : elected_->locator();
  }

 private:
  void OnEndpointFound(const FoundEndpoint& found);
  absl::StatusOr<std::string> MakeStateDir() const;
  std::string Socket() const;
  void Host(const FoundEndpoint& found, const std::string& listen);
  void PublishPort(const std::string& host, int port);
  void OnReady(const FoundEndpoint& found, const absl::StatusOr<int>& port);
  void OnRestarted(const ServiceChild::Restarted& restarted);
  void StandForElection(const FoundEndpoint& found);
  ElectedService::Callbacks ElectionCallbacks(const std::string& host);

  const LaunchPlan& plan_;
  EventLoop* loop_ = nullptr;
  Node node_;
  Hooks hooks_;
  std::unique_ptr<ServiceChild> child_;
  std::unique_ptr<ElectedService> elected_;  // instead of child_ if any node can run the service
  std::unique_ptr<EndpointFinder> finder_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_SERVICE_HOST_H_
