// How an agent finds or starts the rendezvous service, and its stream to it.
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "base/address.h"
#include "base/log.h"
#include "launcher/agent/agent.h"
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
void Agent::PublishServicePort(const std::string& host, int port) {
  const absl::Status status = runtime_dir_->PublishServicePort(absl::StrCat(host, ":", port));
  if (!status.ok()) Log(LogLevel::kWarning, status.message());
}

void Agent::StartEndpoint() {
  if (plan_.endpoint.kind == EndpointPlan::Kind::kUnix) {
    const FoundEndpoint found{.is_local = true,
                              .loopback = true,
                              .node_address = plan_.master_addr,
                              .master_addr = plan_.master_addr,
                              .literal = ""};
    return Host(found, absl::StrCat("unix:", runtime_dir_->File(kServiceSocket)));
  }
  finder_ = EndpointFinder::Start(
      loop_.get(), plan_,
      [this](const absl::Status& error) {
        Feed(ServiceStreamClosed{error, /*will_retry=*/true});
      },
      [this](const FoundEndpoint& found) { OnEndpointFound(found); });
}

void Agent::OnEndpointFound(const FoundEndpoint& found) {
  if (plan_.etcd.has_value()) return StandForService(found);
  const EndpointPlan& endpoint = plan_.endpoint;
  const bool host = endpoint.hosting == EndpointPlan::Hosting::kAlways ||
                    (endpoint.hosting == EndpointPlan::Hosting::kAuto && found.is_local);
  if (!host) {
    service_.reset();
    return Connect(HostPort(endpoint.host, endpoint.port), found, /*hosts=*/false);
  }
  // A loopback endpoint serves only this machine. For any other, listen on all interfaces, even if
  // the name is a loopback address on its own machine (Debian's 127.0.1.1).
  const bool for_others = plan_.job.nodes_max > 1 && !IsLoopback(endpoint.host);
  const std::string listen_host = found.loopback && !for_others ? found.literal : "::";
  Host(found, HostPort(listen_host, endpoint.port));
}

// With etcd no node is the service's host: another node takes over when the one that runs it is
// lost.
void Agent::StandForService(const FoundEndpoint& found) {
  const std::string listen = ListenFor(found.node_address, plan_.service_port);
  absl::StatusOr<std::unique_ptr<ElectedService>> elected = ElectedService::Create(
      loop_.get(), *plan_.etcd,
      {.listen = listen,
       .socket = absl::StrCat("unix:", runtime_dir_->File(kServiceSocket)),
       .token = plan_.token,
       .tls = plan_.tls,
       .run_id = plan_.job.run_id,
       .event_log = plan_.event_log,
       .status_page = plan_.status_page,
       .status_page_token = plan_.status_page_token,
       .state_dir = "",
       .etcd = {}},
      node_id_, found.node_address,
      {.on_serving =
           [this, host = HostOf(listen)](int port, pid_t pid) {
             PublishServicePort(host, port);
             Log(LogLevel::kInfo, "this node serves the job");
             Write("service_started", {{"port", port}, {"service_pid", pid}});
           },
       .on_gone =
           [this](const std::string& how) {
             Notify(absl::StrCat("the rendezvous service of this node ", how,
                                 "; another one takes the job over, workers go on"));
             Write("service_gone", {{"how", how}});
           },
       .on_begun_again =
           [several = plan_.job.nodes_max > 1](const std::string& how) {
             if (!several) return;
             Notify(absl::StrCat(how,
                                 ". This node began after that end, so it begins the job again "
                                 "and waits for the others; if it only came late, stop it"));
           },
       .on_trouble = [](const std::string& text) { Notify(absl::StrCat("warning: ", text)); }});
  if (!elected.ok()) return Fail(elected.status());
  elected_ = *std::move(elected);
  Connect("", found, /*hosts=*/false);
}

// Where the service keeps its state; "" = nowhere, because the default folder can't be made.
absl::StatusOr<std::string> Agent::MakeStateDir() const {
  const bool given = !plan_.state_dir.empty();
  const std::string path = given ? plan_.state_dir : runtime_dir_->File(kServiceState);
  const absl::Status made = MakeWritableFolder(path);
  if (made.ok()) return path;
  if (given) return absl::FailedPreconditionError(absl::StrCat("--state_dir: ", made.message()));
  Notify(absl::StrCat("warning: a rendezvous service that dies will have forgotten the job: ",
                      made.message()));
  return "";
}

void Agent::Host(const FoundEndpoint& found, const std::string& listen) {
  const absl::StatusOr<std::string> state_dir = MakeStateDir();
  if (!state_dir.ok()) return Fail(state_dir.status());
  const bool is_unix = plan_.endpoint.kind == EndpointPlan::Kind::kUnix;
  service_->Serve(
      loop_.get(),
      {.listen = listen,
       .socket = is_unix ? "" : absl::StrCat("unix:", runtime_dir_->File(kServiceSocket)),
       .token = plan_.token,
       .tls = plan_.tls,
       .run_id = plan_.job.run_id,
       .event_log = plan_.event_log,
       .status_page = plan_.status_page,
       .status_page_token = plan_.status_page_token,
       .state_dir = *state_dir,
       .state_outlives_machine = !plan_.state_dir.empty(),
       .host = incarnation_.value(),
       .store_socket = master_.service_socket()},
      plan_.service.loss,
      {.on_ready =
           [this, found, host = is_unix ? "" : HostOf(listen)](absl::StatusOr<int> port) {
             if (port.ok() && !host.empty()) PublishServicePort(host, *port);
             OnServiceReady(found, std::move(port));
           },
       .on_trouble = [](const std::string& text) { Notify(text); },
       .on_restarted =
           [this](const ServiceChild::Restarted& restarted) { OnServiceRestarted(restarted); },
       .on_exit = [this](const std::string& how) { Feed(ServiceExited{how}); }});
}

// The new service has the state of the one that died, or an empty one. Agents reconnect by
// themselves.
void Agent::OnServiceRestarted(const ServiceChild::Restarted& restarted) {
  const int64_t ms = absl::ToInt64Milliseconds(restarted.missing);
  Notify(absl::StrCat("the rendezvous service ", restarted.how, "; started again after ", ms,
                      " ms (pid ", restarted.pid, "); workers go on"));
  Write("service_restarted", {{"how", restarted.how},
                              {"service_pid", restarted.pid},
                              {"ms", ms},
                              {"times", restarted.times}});
}

void Agent::OnServiceReady(const FoundEndpoint& found, absl::StatusOr<int> port) {
  const EndpointPlan& endpoint = plan_.endpoint;
  if (port.ok()) {
    Write("service_started", {{"port", *port}, {"service_pid", service_->pid()}});
    if (endpoint.kind == EndpointPlan::Kind::kUnix) {
      return Connect(absl::StrCat("unix:", runtime_dir_->File(kServiceSocket)), found, true);
    }
    // An address that is translated on the way here (NAT) may not be reachable from here.
    const std::string host = found.loopback   ? found.literal
                             : found.is_local ? endpoint.host
                                              : "127.0.0.1";
    return Connect(HostPort(host, *port), found, true);
  }
  const bool may_join = endpoint.kind == EndpointPlan::Kind::kTcp &&
                        endpoint.hosting == EndpointPlan::Hosting::kAuto &&
                        absl::IsAlreadyExists(port.status());
  if (!may_join) return Fail(NotServingError(endpoint, port.status()));
  // Another agent of this machine was quicker: use its service.
  service_.reset();
  Connect(HostPort(endpoint.host, endpoint.port), found, /*hosts=*/false, /*port_is_taken=*/true);
}

void Agent::Connect(const std::string& target, const FoundEndpoint& found, bool hosts,
                    bool port_is_taken) {
  if (absl::Status status = StartAgentServer(found.node_address); !status.ok()) {
    return Fail(status);
  }
  Feed(
      EndpointFound{.node_address = found.master_addr,
                    .store_address = agent_server_->peer_port() == 0
                                         ? ""
                                         : HostPort(found.node_address, agent_server_->peer_port()),
                    .hosts_service = hosts,
                    // Also behind a translated address. A member of etcd isn't our endpoint.
                    .hosts_endpoint = hosts || (found.is_local && elected_ == nullptr),
                    .is_strange = hosts && !found.is_local && elected_ == nullptr,
                    .is_loopback = elected_ == nullptr && IsLoopback(plan_.endpoint.host),
                    .port_is_taken = port_is_taken,
                    .port_advice = port_is_taken ? KernelPortsHint(plan_.endpoint.port) : ""});
  client_ = rendezvous::RendezvousClient::Start(
      loop_.get(),
      {.target = target,
       .keepalive = rendezvous::KeepaliveOf(plan_.job),
       .lease = rendezvous::LeaseOf(plan_.job),
       .tls = plan_.tls,
       .locator = elected_ == nullptr ? nullptr : elected_->locator()},
      {.on_stream_open = [this] { Feed(StreamOpened{}); },
       .on_message =
           [this](rendezvous::ServiceMessage message) {
             Feed(ServiceMessageReceived{std::move(message)});
           },
       .on_heartbeat = [this] { Feed(HeartbeatHeard{}); },
       .on_stream_closed =
           [this](const absl::Status& status, bool will_retry) {
             Feed(ServiceStreamClosed{status, will_retry});
           }});
}

}  // namespace ddprun::launcher
