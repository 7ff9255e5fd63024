#include "launcher/plan/launch_planner.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/message_name.h"
#include "base/status_macros.h"
#include "base/text.h"
#include "launcher/options/argument.h"
#include "launcher/options/endpoint_options.h"
#include "launcher/options/query_options.h"
#include "launcher/options/values.h"
#include "launcher/plan/guard_options.h"
#include "launcher/plan/plan_parts.h"
#include "launcher/plan/rendezvous_config.h"
#include "launcher/plan/worker_command.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::launcher {
namespace {

constexpr uint16_t kMasterPort = 29500;                            // torchrun's for static
constexpr absl::Duration kStaticJoinTimeout = absl::Seconds(900);  // torchrun's
constexpr char kLoopback[] = "127.0.0.1";

class Planner {
 public:
  Planner(const LaunchArguments& arguments, const EnvironmentLookup& environment, const Host& host,
          std::vector<std::string>* warnings)
      : arguments_(arguments), environment_(environment), host_(host), warnings_(warnings) {}

  absl::StatusOr<LaunchPlan> Plan() {
    absl::StatusOr<WorkerCommand> command = MakeWorkerCommand(arguments_, environment_, host_);
    if (!command.ok() && absl::IsInvalidArgument(command.status())) return command.status();
    const size_t told = warnings_->size();
    const absl::Status options = PlanOptions();
    // An error in the options comes before one of the script.
    DDPRUN_RETURN_IF_ERROR(options);
    if (!command.ok()) {
      warnings_->resize(told);
      return command.status();
    }
    PlanCommand(arguments_, *std::move(command), &plan_);
    DDPRUN_RETURN_IF_ERROR(PlanWarm(arguments_, environment_, host_, &plan_));
    plan_.warm.crowded = plan_.worker_count >= host_.CpuCount();
    return std::move(plan_);
  }

 private:
  enum class Mode { kStandalone, kStatic, kDynamic, kEtcd };

  void Warn(std::string text) { warnings_->push_back(std::move(text)); }
  bool ManyNodes() const { return plan_.job.nodes_max > 1; }
  // A job of one node without an endpoint: the newest torchrun starts it as with --standalone.
  bool IsAlone() const {
    return mode_ == Mode::kStatic && !ManyNodes() && !arguments_.rdzv_endpoint.filled() &&
           !arguments_.master_port.given();
  }

  absl::Status PlanOptions() {
    DDPRUN_RETURN_IF_ERROR(PlanSize());
    if (DefaultsOmpThreads(plan_, environment_)) {
      plan_.note_at_start =
          absl::StrCat("starting ", plan_.worker_count,
                       " workers with one CPU thread each (OMP_NUM_THREADS=1, as with torchrun; "
                       "--omp_threads auto shares the CPUs out)");
    }
    DDPRUN_RETURN_IF_ERROR(PlanMode());
    DDPRUN_RETURN_IF_ERROR(PlanNames());
    DDPRUN_RETURN_IF_ERROR(PlanMasterPort());
    DDPRUN_RETURN_IF_ERROR(PlanNodeRank());
    DDPRUN_RETURN_IF_ERROR(PlanEndpoint());
    PlanMasterAddress();
    DDPRUN_RETURN_IF_ERROR(PlanTimes());
    DDPRUN_RETURN_IF_ERROR(PlanRestarts(arguments_, &plan_.job));
    DDPRUN_RETURN_IF_ERROR(CheckIdleOptions());
    DDPRUN_RETURN_IF_ERROR(PlanOutput(arguments_, host_, &plan_, warnings_));
    DDPRUN_ASSIGN_OR_RETURN(plan_.signals,
                            PlanSignals(arguments_, plan_.job.stop_grace, warnings_));
    return absl::OkStatus();
  }
  absl::Status PlanSize();
  absl::Status PlanMode();
  absl::Status PlanNames();
  absl::Status PlanMasterPort();
  absl::Status PlanNodeRank();
  absl::Status PlanEndpoint();
  absl::Status PlanStaticEndpoint();
  absl::Status PlanDynamicEndpoint();
  void PlanPortOfStore();
  void PlanMasterAddress();
  absl::Status PlanStateDir();
  absl::Status PlanServiceLoss();
  absl::Status PlanTimes();
  absl::StatusOr<absl::Duration> StopGrace() const;
  absl::Status CheckIdleOptions();

  const LaunchArguments& arguments_;
  const EnvironmentLookup& environment_;
  const Host& host_;
  std::vector<std::string>* warnings_;
  Mode mode_ = Mode::kStatic;
  RendezvousConfig config_;
  std::string master_addr_;  // as given, without brackets; with the static rendezvous alone
  LaunchPlan plan_;
};

absl::Status Planner::PlanSize() {
  DDPRUN_ASSIGN_OR_RETURN(const NodeRange nodes, ParseNodeRange(arguments_.nnodes));
  plan_.job.nodes_min = nodes.min;
  plan_.job.nodes_max = nodes.max;
  DDPRUN_RETURN_IF_ERROR(PlanDevices(arguments_, environment_, host_, &plan_));
  DDPRUN_RETURN_IF_ERROR(PlanBinding(arguments_, &plan_));
  return absl::OkStatus();
}

absl::Status Planner::PlanMode() {
  const std::string& backend = arguments_.rdzv_backend.text;
  if (arguments_.standalone) {
    mode_ = Mode::kStandalone;
    if (ManyNodes() && plan_.job.nodes_min == 1) {
      Warn(absl::StrCat("--standalone is a job of one node: ", arguments_.nnodes.source, " ",
                        Quoted(arguments_.nnodes.text), " is taken for 1"));
      plan_.job.nodes_max = 1;
    }
    if (ManyNodes()) {
      return UsageError(absl::StrCat("--standalone is a job of one node, but ",
                                     arguments_.nnodes.source, " is ",
                                     Quoted(arguments_.nnodes.text), "; leave one of them out"));
    }
    for (const Argument* ignored : {&arguments_.rdzv_endpoint, &arguments_.rdzv_id}) {
      if (ignored->filled()) Warn(absl::StrCat("--standalone ignores ", ignored->source));
    }
  } else if (IsEtcdBackend(backend)) {
    mode_ = Mode::kEtcd;
  } else if (backend != "static" && backend != "c10d") {
    return BadValue(arguments_.rdzv_backend,
                    "is not registered as a backend; give static, c10d or etcd");
  } else if (arguments_.rdzv_backend.given()) {
    mode_ = backend == "c10d" ? Mode::kDynamic : Mode::kStatic;
  } else if (arguments_.rdzv_endpoint.filled() && !arguments_.node_rank.given()) {
    mode_ = Mode::kDynamic;
  }
  const bool etcd = mode_ == Mode::kEtcd;
  if (!etcd && arguments_.service_port.given()) {
    return UsageError(absl::StrCat(arguments_.service_port.source,
                                   " is for --rdzv_backend etcd; else the service is at the port "
                                   "of --rdzv_endpoint, or of --master_port"));
  }
  const bool is_static = mode_ == Mode::kStatic && !IsAlone();
  plan_.rdzv_backend = etcd ? backend : is_static ? "static" : "c10d";
  DDPRUN_ASSIGN_OR_RETURN(config_, ParseRendezvousConfig(arguments_.rdzv_conf, etcd, warnings_));
  return absl::OkStatus();
}

absl::Status Planner::PlanNames() {
  plan_.job.run_id = arguments_.rdzv_id.text;
  if (mode_ == Mode::kStandalone || (IsAlone() && !arguments_.rdzv_id.given())) {
    plan_.job.run_id = host_.RandomId();
  } else if (plan_.job.run_id.empty()) {
    plan_.job.run_id = host_.RandomId();
    Warn(absl::StrCat(arguments_.rdzv_id.source, " is empty; this run is called ",
                      plan_.job.run_id));
  }
  plan_.given_run_id = std::exchange(plan_.job.run_id, NameInMessages(plan_.job.run_id));
  plan_.given_role = arguments_.role.text;
  plan_.role = NameInMessages(arguments_.role.text);
  if (arguments_.local_addr.filled()) {
    DDPRUN_ASSIGN_OR_RETURN(plan_.local_addr, ParseHost(arguments_.local_addr));
  }
  if (arguments_.master_addr.filled() && mode_ == Mode::kStatic) {
    DDPRUN_ASSIGN_OR_RETURN(master_addr_, ParseHost(arguments_.master_addr));
  }
  DDPRUN_ASSIGN_OR_RETURN(plan_.token, ReadToken(arguments_.token, arguments_.token_file, host_));
  DDPRUN_ASSIGN_OR_RETURN(
      plan_.status_page_token,
      ReadStatusPageToken(arguments_.status_page_token_file, environment_, host_));
  DDPRUN_ASSIGN_OR_RETURN(plan_.tls, ReadTlsDir(arguments_.tls_dir, host_));
  return absl::OkStatus();
}

absl::Status Planner::PlanMasterPort() {
  plan_.agent_store = environment_("TORCH_DISABLE_SHARE_RDZV_TCP_STORE").value_or("") != "1";
  if (!arguments_.master_port.given()) return absl::OkStatus();
  plan_.master_port_is_wish = mode_ != Mode::kStatic;
  const absl::StatusOr<int64_t> given =
      ParseInteger(arguments_.master_port, 0, std::numeric_limits<uint16_t>::max());
  if (!given.ok() && plan_.master_port_is_wish && !absl::IsInvalidArgument(given.status())) {
    Warn(absl::StrCat(given.status().message(), "; workers get a free MASTER_PORT"));
    return absl::OkStatus();
  }
  DDPRUN_ASSIGN_OR_RETURN(const int64_t port, given);
  if (port == 0 && plan_.master_port_is_wish) return absl::OkStatus();
  if (port == 0 && ManyNodes()) {
    return BadValue(arguments_.master_port,
                    "any free port can't be known to the other nodes; give a port, or leave it "
                    "out");
  }
  if (port != 0) plan_.master_port = static_cast<uint16_t>(port);
  return absl::OkStatus();
}

absl::Status Planner::PlanNodeRank() {
  if (mode_ == Mode::kStandalone) return absl::OkStatus();
  const bool is_static = mode_ == Mode::kStatic;
  DDPRUN_ASSIGN_OR_RETURN(
      const int64_t rank,
      ParseInteger(
          arguments_.node_rank, is_static ? 0 : std::numeric_limits<int64_t>::min(),
          is_static ? int64_t{rendezvous::kNodesMax} - 1 : std::numeric_limits<int64_t>::max()));
  const std::string outside = absl::StrCat("the nodes of --nnodes ", Quoted(arguments_.nnodes.text),
                                           " are 0 to ", plan_.job.nodes_max - 1);
  if (rank < 0 || rank >= plan_.job.nodes_max) {
    if (is_static) return BadValue(arguments_.node_rank, outside);
    // Under c10d torchrun ignores the option, and spare nodes carry such numbers.
    Warn(absl::StrCat(arguments_.node_rank.source, " ", Printable(arguments_.node_rank.text),
                      " is ignored: ", outside));
    return absl::OkStatus();
  }
  if (ManyNodes() && (is_static || arguments_.node_rank.given())) {
    plan_.node_rank = static_cast<uint32_t>(rank);
    const std::string& source = arguments_.node_rank.source;
    const bool typed = absl::StartsWith(source, "--") || absl::StartsWith(source, "PET_");
    plan_.node_rank_is_wish = !is_static && typed;
  }
  return absl::OkStatus();
}

absl::Status Planner::PlanEndpoint() {
  switch (mode_) {
    case Mode::kStandalone:
      plan_.endpoint.hosting = EndpointPlan::Hosting::kAlways;
      return absl::OkStatus();
    case Mode::kStatic:
      DDPRUN_RETURN_IF_ERROR(PlanStaticEndpoint());
      break;
    case Mode::kDynamic:
      DDPRUN_RETURN_IF_ERROR(PlanDynamicEndpoint());
      break;
    case Mode::kEtcd:
      return PlanEtcd(arguments_, environment_, config_.etcd, &plan_);
  }
  if (plan_.endpoint.kind == EndpointPlan::Kind::kUnix) return absl::OkStatus();
  const std::optional<bool> hosts =
      config_.is_host.has_value() ? config_.is_host : arguments_.hosts_service;
  if (hosts.has_value()) {
    plan_.endpoint.hosting =
        *hosts ? EndpointPlan::Hosting::kAlways : EndpointPlan::Hosting::kNever;
  }
  if (plan_.endpoint.port == 0 && ManyNodes() && plan_.job.nodes_min == 1) {
    Warn(absl::StrCat(arguments_.rdzv_endpoint.source, " ", Quoted(arguments_.rdzv_endpoint.text),
                      ": port 0 is any free port, which no other node can know; this job stays "
                      "with one node"));
    plan_.job.nodes_max = 1;
  }
  if (plan_.endpoint.port == 0 && ManyNodes()) {
    return BadValue(arguments_.rdzv_endpoint,
                    "port 0 is any free port, which the other nodes can't know; give a port");
  }
  PlanPortOfStore();
  return absl::OkStatus();
}

// Static: node 0's service has the port of the workers' store, too, as torchrun's. Otherwise they
// are at two ports.
void Planner::PlanPortOfStore() {
  EndpointPlan& endpoint = plan_.endpoint;
  const bool is_static = mode_ == Mode::kStatic && plan_.agent_store && endpoint.port != 0;
  const bool is_first = plan_.node_rank.value_or(0) == 0;
  endpoint.has_store = is_static && is_first && endpoint.hosting == EndpointPlan::Hosting::kAlways;
  if (!endpoint.has_store && plan_.master_port == endpoint.port) {
    plan_.master_port.reset();
    if (is_static && !is_first) return;  // as it should be, unless node 0 warns
    Warn(absl::StrCat(arguments_.master_port.source, " ", endpoint.port,
                      " is where the rendezvous service is, so workers get a free MASTER_PORT"));
  }
  if (!endpoint.has_store) return;
  if (plan_.master_port.value_or(endpoint.port) != endpoint.port) {
    Warn(absl::StrCat(arguments_.master_port.source, " ", *plan_.master_port,
                      " is ignored: with the static rendezvous, MASTER_PORT is the port of ",
                      arguments_.rdzv_endpoint.source));
  }
  plan_.master_port = endpoint.port;
}

absl::Status Planner::PlanStaticEndpoint() {
  EndpointPlan& endpoint = plan_.endpoint;
  const bool is_first = plan_.node_rank.value_or(0) == 0;
  endpoint.hosting = is_first ? EndpointPlan::Hosting::kAlways : EndpointPlan::Hosting::kNever;
  if (arguments_.rdzv_endpoint.filled()) {
    DDPRUN_ASSIGN_OR_RETURN(const Endpoint given, ParseEndpoint(arguments_.rdzv_endpoint));
    if (!given.port.has_value()) {
      return BadValue(arguments_.rdzv_endpoint,
                      "has no port, which the static rendezvous needs; give HOST:PORT, or "
                      "--master_addr and --master_port instead");
    }
    endpoint.kind = EndpointPlan::Kind::kTcp;
    endpoint.host = given.host;
    endpoint.port = *given.port;
    return absl::OkStatus();
  }
  if (!ManyNodes()) return absl::OkStatus();
  const uint16_t master_port = plan_.master_port.value_or(kMasterPort);
  endpoint.kind = EndpointPlan::Kind::kTcp;
  endpoint.host = master_addr_.empty() ? kLoopback : master_addr_;
  endpoint.port = master_port;
  endpoint.follows_master_port = true;
  if (plan_.agent_store) return absl::OkStatus();
  // Worker rank 0 serves the store, and listens at the master's port by itself.
  if (master_port == std::numeric_limits<uint16_t>::max()) {
    return BadValue(arguments_.master_port,
                    "the rendezvous service would be at the port after it; give a lower one, or "
                    "--rdzv_endpoint HOST:PORT too");
  }
  endpoint.port = static_cast<uint16_t>(master_port + 1);
  endpoint.follows_master_port = false;
  return absl::OkStatus();
}

absl::Status Planner::PlanDynamicEndpoint() {
  EndpointPlan& endpoint = plan_.endpoint;
  endpoint.kind = EndpointPlan::Kind::kTcp;
  endpoint.hosting = EndpointPlan::Hosting::kAuto;
  endpoint.host = "localhost";
  endpoint.port = kDefaultServicePort;
  if (arguments_.rdzv_endpoint.filled()) {
    DDPRUN_ASSIGN_OR_RETURN(const Endpoint given, ParseEndpoint(arguments_.rdzv_endpoint));
    endpoint.host = given.host;
    endpoint.port = given.port.value_or(kDefaultServicePort);
  } else {
    Warn(absl::StrCat("no --rdzv_endpoint was given; the rendezvous is at localhost:",
                      kDefaultServicePort, "; master_addr and master_port do not say where it is"));
  }
  if (arguments_.master_addr.filled()) {
    Warn(absl::StrCat(arguments_.master_addr.source,
                      " is ignored: it belongs to the static rendezvous; here MASTER_ADDR is the "
                      "address of the node that has rank 0 (see --local_addr)"));
  }
  return absl::OkStatus();
}

void Planner::PlanMasterAddress() {
  switch (mode_) {
    case Mode::kStandalone:
      plan_.master_addr = plan_.local_addr.empty() ? kLoopback : plan_.local_addr;
      return;
    case Mode::kStatic:
      // As torchrun: an endpoint wins over --master_addr.
      if (plan_.endpoint.kind == EndpointPlan::Kind::kTcp) {
        plan_.master_addr = plan_.endpoint.host;
      } else {
        plan_.master_addr = master_addr_.empty() ? kLoopback : master_addr_;
      }
      // As torchrun: each node's workers get what was typed on it. Node 0's own name for itself,
      // or 0.0.0.0, may lead nowhere from here.
      if (ManyNodes() && plan_.endpoint.hosting == EndpointPlan::Hosting::kNever &&
          !config_.is_host.has_value() && !arguments_.hosts_service.has_value()) {
        plan_.first_node = plan_.master_addr;
      }
      return;
    case Mode::kDynamic:
    case Mode::kEtcd:
      return;  // the node's own
  }
}

// --shutdown_timeout is upstream's name of --grace.
absl::StatusOr<absl::Duration> Planner::StopGrace() const {
  const Argument& grace = arguments_.grace;
  const Argument& shutdown = arguments_.shutdown_timeout;
  DDPRUN_ASSIGN_OR_RETURN(const absl::Duration ours, ParseDuration(grace, absl::ZeroDuration()));
  DDPRUN_ASSIGN_OR_RETURN(const absl::Duration upstreams,
                          ParseDuration(shutdown, absl::ZeroDuration()));
  if (!shutdown.given()) return ours;
  if (grace.given() && ours != upstreams) {
    return BadValue(shutdown, absl::StrCat("is the same as ", grace.source, ", which says ",
                                           Quoted(grace.text), "; give one of them"));
  }
  return upstreams;
}

// The folder itself is made by the agent that has the service.
absl::Status Planner::PlanStateDir() {
  Argument folder = arguments_.state_dir;
  if (!folder.given() && config_.state_dir.has_value()) {
    folder = {.text = *config_.state_dir,
              .source = absl::StrCat(arguments_.rdzv_conf.source, " state_dir")};
  }
  if (!folder.given()) return absl::OkStatus();
  const Host::PathKind kind = host_.KindOf(folder.text);
  const bool can_be =
      kind == Host::PathKind::kDirectory || (kind == Host::PathKind::kMissing && folder.filled());
  if (!can_be) {
    return BadValue(folder, "is not a directory; give one, or a path to make one at");
  }
  plan_.state_dir = folder.text;
  return absl::OkStatus();
}

absl::Status Planner::PlanServiceLoss() {
  ServiceTimeouts& service = plan_.service;
  if (const Argument& loss = arguments_.service_loss_timeout; loss.given()) {
    DDPRUN_ASSIGN_OR_RETURN(service.loss, ParseDuration(loss, absl::ZeroDuration()));
    service.loss_without_workers = service.loss;
    return absl::OkStatus();
  }
  // Silence counts as a loss only after a lease, and the wait counts from the last message.
  service.loss = std::max(service.loss, 2 * plan_.job.lease);
  service.loss_without_workers = std::max(service.loss_without_workers, 2 * plan_.job.lease);
  // A service that resumes from a record may take longer to be started.
  const bool may_come_back = !plan_.state_dir.empty() || plan_.etcd.has_value();
  if (may_come_back) service.loss_without_workers = service.loss;
  return absl::OkStatus();
}

absl::Status Planner::PlanTimes() {
  rendezvous::JobSpec& job = plan_.job;
  job.join_timeout = config_.join_timeout.value_or(
      mode_ == Mode::kStatic && ManyNodes() ? kStaticJoinTimeout : job.join_timeout);
  plan_.service.reach = config_.read_timeout.value_or(plan_.service.reach);
  job.last_call_timeout = config_.last_call_timeout.value_or(job.last_call_timeout);
  DDPRUN_ASSIGN_OR_RETURN(job.lease, ParseDuration(arguments_.lease, rendezvous::kLeaseMin));
  if (!arguments_.lease.given() && config_.lease.has_value()) job.lease = *config_.lease;
  job.lease_is_proof = arguments_.lease.given() || config_.lease.has_value();
  if (job.lease < rendezvous::kLeaseMin) {
    return BadValue(
        arguments_.rdzv_conf,
        absl::StrCat("lease must be at least ", absl::FormatDuration(rendezvous::kLeaseMin)));
  }
  DDPRUN_ASSIGN_OR_RETURN(job.reconnect_grace,
                          ParseDuration(arguments_.reconnect_grace, absl::ZeroDuration()));
  if (job.reconnect_grace > job.lease) {
    return BadValue(arguments_.reconnect_grace,
                    absl::StrCat("must not be longer than the lease (",
                                 absl::FormatDuration(job.lease), "); see --lease"));
  }
  DDPRUN_ASSIGN_OR_RETURN(job.stop_grace, StopGrace());
  DDPRUN_RETURN_IF_ERROR(PlanStateDir());
  DDPRUN_RETURN_IF_ERROR(PlanServiceLoss());
  DDPRUN_ASSIGN_OR_RETURN(plan_.isolation_timeout,
                          ParseDuration(arguments_.isolation_timeout, rendezvous::kLeaseMin));
  if (plan_.isolation_timeout <= job.lease) {
    return PlanError(absl::StrCat(
        "--isolation_timeout (", absl::FormatDuration(plan_.isolation_timeout),
        ") must be longer than the lease (", absl::FormatDuration(job.lease), "); set both"));
  }
  if (const Argument& barrier = arguments_.exit_barrier_timeout; barrier.given()) {
    DDPRUN_ASSIGN_OR_RETURN(plan_.exit_barrier.timeout,
                            ParseDuration(barrier, absl::ZeroDuration()));
  }
  plan_.ending.with_first_cause = arguments_.exit_code.text == "worker";
  if (!plan_.ending.with_first_cause && arguments_.exit_code.text != "1") {
    return BadWord(arguments_.exit_code, "is neither 1 nor worker");
  }
  DDPRUN_RETURN_IF_ERROR(PlanGuards(arguments_, &plan_));
  return PlanHangs(arguments_, &plan_);
}

// Options that torchrun needs and that have no effect here are checked, and a warning says so.
//
// So scripts that give them keep running, and no user believes that they had an effect.
// --logs_specs is refused instead: a job that writes its logs to another place than the user asked
// for is worse than one that doesn't start.
absl::Status Planner::CheckIdleOptions() {
  DDPRUN_RETURN_IF_ERROR(
      ParseDuration(arguments_.monitor_interval, absl::Nanoseconds(1), absl::InfiniteDuration())
          .status());
  const Argument& method = arguments_.start_method;
  const bool is_given = !absl::StartsWith(method.source, "PET_");  // which torchrun doesn't check
  if (is_given && method.text != "spawn" && method.text != "fork" && method.text != "forkserver") {
    return BadWord(method, "give spawn, fork or forkserver");
  }
  const auto explain = [this](const Argument& argument, absl::string_view why) {
    if (argument.given()) Warn(absl::StrCat(argument.source, " has no effect: ", why));
  };
  explain(arguments_.monitor_interval,
          "ddprun gets events from the kernel at once and doesn't poll");
  explain(arguments_.start_method, "every worker is a new process");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<LaunchPlan> MakeLaunchPlan(const LaunchArguments& arguments,
                                          const EnvironmentLookup& environment, const Host& host,
                                          std::vector<std::string>* warnings) {
  // Planned with what the workers will see.
  const EnvironmentLookup merged = [&](const std::string& name) -> std::optional<std::string> {
    std::optional<std::string> value = environment(name);
    if (value.has_value()) return value;
    for (const auto& [other, text] : arguments.worker_environment) {
      if (other == name) return text;
    }
    return std::nullopt;
  };
  return Planner(arguments, merged, host, warnings).Plan();
}

}  // namespace ddprun::launcher
