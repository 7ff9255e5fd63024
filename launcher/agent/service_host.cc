#include "launcher/agent/service_host.h"

#include <cstdint>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "base/address.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "launcher/machine/host_probe.h"
#include "launcher/os/files.h"
#include "rendezvous/wire/tcp_listener.h"

namespace ddprun::launcher {
namespace {

// Why this node can't serve the job; if the port is taken, with the option that changes it.
absl::Status NotServingError(const EndpointPlan& endpoint, const absl::Status& why) {
  if (!absl::EndsWith(why.message(), rendezvous::kPortTakenHint)) return why;
  const absl::string_view option =
      endpoint.follows_master_port ? "--master_port" : "--rdzv_endpoint";
  return absl::UnavailableError(absl::StrCat(option, ": ", why.message(), " in ", option,
                                             " on all nodes", KernelPortsHint(endpoint.port)));
}

// The host of "host:port", with its brackets.
std::string HostOf(const std::string& listen) { return listen.substr(0, listen.rfind(':')); }

}  // namespace

// With this file commands on this machine find the service by any name; without it, only over TCP.
void ServiceHost::PublishPort(const std::string& host, int port) {
  const absl::Status status = node_.folder->PublishServicePort(absl::StrCat(host, ":", port));
  if (!status.ok()) Log(LogLevel::kWarning, status.message());
}

absl::Status ServiceHost::Fork(const std::vector<int>& close_in_child) {
  if (plan_.endpoint.hosting == EndpointPlan::Hosting::kNever) return absl::OkStatus();
  DDPRUN_ASSIGN_OR_RETURN(child_, ServiceChild::Fork(close_in_child));
  return absl::OkStatus();
}

void ServiceHost::StartNoMore() {
  if (child_ != nullptr) child_->StartNoMore();
}

void ServiceHost::End(bool job_over, std::function<void()> done) {
  if (elected_ == nullptr) return done();
  elected_->End(job_over, std::move(done));
}

// Where commands on this machine, and this agent, reach the service.
std::string ServiceHost::Socket() const {
  return absl::StrCat("unix:", node_.folder->File(kServiceSocket));
}

void ServiceHost::Start(EventLoop* loop, Node node, Hooks hooks) {
  loop_ = loop;
  node_ = std::move(node);
  hooks_ = std::move(hooks);
  if (plan_.endpoint.kind == EndpointPlan::Kind::kUnix) return HostAlone();
  finder_ = EndpointFinder::Start(
      loop_, plan_,
      [this](const absl::Status& error) {
        hooks_.feed(ServiceStreamClosed{error, /*will_retry=*/true});
      },
      [this](const FoundEndpoint& found) { OnEndpointFound(found); });
}

void ServiceHost::HostAlone() {
  if (child_ == nullptr) {
    absl::StatusOr<std::unique_ptr<ServiceChild>> child = ServiceChild::Spawn();
    if (!child.ok()) return hooks_.fail(child.status());
    child_ = *std::move(child);
  }
  Host({.is_local = true,
        .loopback = true,
        .node_address = plan_.master_addr,
        .master_addr = plan_.master_addr,
        .literal = ""},
       Socket());
}

void ServiceHost::OnEndpointFound(const FoundEndpoint& found) {
  if (plan_.etcd.has_value()) return StandForElection(found);
  const EndpointPlan& endpoint = plan_.endpoint;
  const bool host = endpoint.hosting == EndpointPlan::Hosting::kAlways ||
                    (endpoint.hosting == EndpointPlan::Hosting::kAuto && found.is_local);
  if (!host) {
    child_.reset();
    return hooks_.connect({.address = HostPort(endpoint.host, endpoint.port), .found = found});
  }
  // As torchrun: other nodes may know this one by another name than the one that was typed here,
  // which may be localhost, or a name that is a loopback address here alone (Debian's 127.0.1.1).
  const bool alone = plan_.job.nodes_max == 1 && found.loopback;
  Host(found, HostPort(alone ? found.literal : "::", endpoint.port));
}

// With etcd no node is the service's host: another node takes over when the one that runs it is
// lost.
void ServiceHost::StandForElection(const FoundEndpoint& found) {
  const std::string listen = ListenFor(found.node_address, plan_.service_port);
  absl::StatusOr<std::unique_ptr<ElectedService>> elected =
      ElectedService::Create(loop_, *plan_.etcd,
                             {.listen = listen,
                              .socket = Socket(),
                              .token = plan_.token,
                              .tls = plan_.tls,
                              .only_run_id = plan_.job.run_id,
                              .event_log = plan_.event_log,
                              .status_page = plan_.status_page,
                              .status_page_token = plan_.status_page_token,
                              .state_dir = "",
                              .etcd = {}},
                             node_.id, found.node_address, ElectionCallbacks(HostOf(listen)));
  if (!elected.ok()) return hooks_.fail(elected.status());
  elected_ = *std::move(elected);
  hooks_.connect({.address = "", .found = found});
}

ElectedService::Callbacks ServiceHost::ElectionCallbacks(const std::string& host) {
  return {.on_serving =
              [this, host](int port, pid_t pid) {
                PublishPort(host, port);
                Log(LogLevel::kInfo, "this node serves the job");
                hooks_.write("service_started", {{"port", port}, {"service_pid", pid}});
              },
          .on_gone =
              [this](const std::string& how) {
                Notify(absl::StrCat("the rendezvous service of this node ", how,
                                    "; another one takes the job over, workers go on"));
                hooks_.write("service_gone", {{"how", how}});
              },
          .on_begun_again =
              [several = plan_.job.nodes_max > 1](const std::string& how) {
                if (!several) return;
                Notify(absl::StrCat(how,
                                    ". This node began after that end, so it begins the job again "
                                    "and waits for the others; if it only came late, stop it"));
              },
          .on_trouble = [](const std::string& text) { Notify(absl::StrCat("warning: ", text)); }};
}

// Where the service keeps its state; "" = nowhere, because the default folder can't be made.
absl::StatusOr<std::string> ServiceHost::MakeStateDir() const {
  const bool given = !plan_.state_dir.empty();
  const std::string path = given ? plan_.state_dir : node_.folder->File(kServiceState);
  const absl::Status made = MakeWritableFolder(path);
  if (made.ok()) return path;
  if (given) return absl::FailedPreconditionError(absl::StrCat("--state_dir: ", made.message()));
  Notify(absl::StrCat("warning: a rendezvous service that dies will have forgotten the job: ",
                      made.message()));
  return "";
}

void ServiceHost::Host(const FoundEndpoint& found, const std::string& listen) {
  const absl::StatusOr<std::string> state_dir = MakeStateDir();
  if (!state_dir.ok()) return hooks_.fail(state_dir.status());
  const bool is_unix = plan_.endpoint.kind == EndpointPlan::Kind::kUnix;
  child_->Serve(
      loop_,
      {.listen = listen,
       .socket = is_unix ? "" : Socket(),
       .token = plan_.token,
       .tls = plan_.tls,
       .only_run_id = plan_.job.run_id,
       .event_log = plan_.event_log,
       .status_page = plan_.status_page,
       .status_page_token = plan_.status_page_token,
       .state_dir = *state_dir,
       .state_outlives_machine = !plan_.state_dir.empty(),
       .host = node_.incarnation.value(),
       .store_fd = node_.store_socket},
      plan_.service.loss,
      {.on_ready =
           [this, found, host = is_unix ? "" : HostOf(listen)](const absl::StatusOr<int>& port) {
             if (port.ok() && !host.empty()) PublishPort(host, *port);
             OnReady(found, port);
           },
       .on_trouble = [](const std::string& text) { Notify(text); },
       .on_restarted = [this](const ServiceChild::Restarted& restarted) { OnRestarted(restarted); },
       .on_exit = [this](const std::string& how) { hooks_.feed(ServiceExited{how}); }});
}

// The new service has the state of the one that died, or an empty one. Agents reconnect by
// themselves.
void ServiceHost::OnRestarted(const ServiceChild::Restarted& restarted) {
  const int64_t ms = absl::ToInt64Milliseconds(restarted.missing);
  Notify(absl::StrCat("the rendezvous service ", restarted.how, "; started again after ", ms,
                      " ms (pid ", restarted.pid, "); workers go on"));
  hooks_.write("service_restarted", {{"how", restarted.how},
                                     {"service_pid", restarted.pid},
                                     {"ms", ms},
                                     {"times", restarted.times}});
}

void ServiceHost::OnReady(const FoundEndpoint& found, const absl::StatusOr<int>& port) {
  const EndpointPlan& endpoint = plan_.endpoint;
  if (port.ok()) {
    hooks_.write("service_started", {{"port", *port}, {"service_pid", child_->pid()}});
    if (endpoint.kind == EndpointPlan::Kind::kUnix) {
      return hooks_.connect({.address = Socket(), .found = found, .hosts = true});
    }
    // An address that is translated on the way here (NAT) may not be reachable from here.
    const std::string host = found.loopback   ? found.literal
                             : found.is_local ? endpoint.host
                                              : "127.0.0.1";
    return hooks_.connect({.address = HostPort(host, *port), .found = found, .hosts = true});
  }
  const bool may_join = endpoint.kind == EndpointPlan::Kind::kTcp &&
                        endpoint.hosting == EndpointPlan::Hosting::kAuto &&
                        absl::IsAlreadyExists(port.status());
  if (!may_join) return hooks_.fail(NotServingError(endpoint, port.status()));
  // Another agent of this machine was quicker: use its service.
  child_.reset();
  hooks_.connect(
      {.address = HostPort(endpoint.host, endpoint.port), .found = found, .port_is_taken = true});
}

}  // namespace ddprun::launcher
