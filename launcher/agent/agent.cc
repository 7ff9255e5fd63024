#include "launcher/agent/agent.h"

#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/address.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "base/thread.h"
#include "base/version.h"
#include "launcher/agent/end_report.h"
#include "launcher/core/output_layout.h"
#include "launcher/logs/log_catalog.h"
#include "launcher/machine/host_probe.h"
#include "launcher/os/files.h"
#include "launcher/os/processes.h"
#include "rendezvous/core/admission.h"
#include "rendezvous/wire/field_checker.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;

// How long an agent waits at its end until the record of its job is written: the file server of a
// home folder may be unreachable.
constexpr absl::Duration kKeptLimit = absl::Milliseconds(200);
// How much is kept for a console that doesn't accept lines; more is lost.
constexpr size_t kConsoleBytesMax = 1 << 20;

// How long a job of one node waits for an answer of what has its endpoint's port.
constexpr absl::Duration kSilentEndpoint = absl::Seconds(10);

// Threads of a process that uses gRPC on a small machine: the agent, and its service.
constexpr int kThreads = 12;
// A job of one worker doesn't start with fewer. A job that needs more fails at the missing one,
// with a message.
constexpr uint64_t kDescriptorsMin = 28;

// The endpoint as users read it.
std::string EndpointText(const LaunchPlan& plan) {
  if (plan.endpoint.kind == EndpointPlan::Kind::kUnix) return "this node";
  if (!plan.etcd.has_value()) return HostPort(plan.endpoint.host, plan.endpoint.port);
  return absl::StrCat(kEtcdEndpoint, absl::StrJoin(plan.etcd->endpoints, ", "));
}

// Stable over the agent's restarts if the user numbers the nodes.
std::string NodeIdOf(const LaunchPlan& plan) {
  return plan.node_rank.has_value() ? absl::StrCat(Hostname(), "/", *plan.node_rank)
                                    : absl::StrCat(Hostname(), "#", getpid());
}

bool IsIgnored(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Agent>> Agent::Prepare(LaunchPlan plan, int node_socket) {
  if (!plan.output.log_dir.empty() && KeepsFiles(plan.output)) {
    const absl::Status made = MakeWritableFolder(plan.output.log_dir);
    if (!made.ok()) return absl::Status(made.code(), absl::StrCat("--log_dir: ", made.message()));
  }
  DDPRUN_RETURN_IF_ERROR(CheckDescriptors(kDescriptorsMin));
  std::unique_ptr<Agent> agent(new Agent(std::move(plan)));
  DDPRUN_ASSIGN_OR_RETURN(RuntimeDir runtime_dir, RuntimeDir::Create());
  agent->runtime_dir_.emplace(std::move(runtime_dir));
  LaunchPlan& p = agent->plan_;
  absl::Status port = agent->master_.TakePort();
  if (!port.ok() && p.master_port_is_wish) {
    Notify(absl::StrCat("--master_port: ", port.message(), "; workers get a free MASTER_PORT"));
    p.master_port.reset();
    port = agent->master_.TakePort();
  }
  if (!port.ok() && IsRankZero(p)) {
    return absl::UnavailableError(absl::StrCat("--master_port: ", port.message(),
                                               ", or leave the option out to get a free one"));
  }
  agent->guards_ = MakeGuards(p.use_cgroup);
  DDPRUN_RETURN_IF_ERROR(agent->TakeKeeper(ProcessEnvironment, node_socket));
  DDPRUN_RETURN_IF_ERROR(agent->service_.Fork(agent->FdsOfThisProcess()));
  return agent;
}

int Agent::Run() {
  // Writing to a console that is gone is an error to ignore, not a reason to die.
  signal(SIGPIPE, SIG_IGN);
  if (absl::Status status = StartParts(); !status.ok()) {
    Notify(absl::StrCat("error: ", status.message()));
    WriteEndFiles(plan_, node_id_, Exit{.status = 1, .why = std::string(status.message())});
    return 1;
  }
  loop_->Post([this] { StartService(); });  // posted, because a failure in it stops the loop
  loop_->Run();
  DDPRUN_CHECK(end_->exit().has_value(), "the loop ends with an exit status");
  if (end_kept_ != nullptr) end_kept_->WaitForNotificationWithTimeout(kKeptLimit);
  return end_->exit()->status;
}

absl::Status Agent::StartParts() {
  DDPRUN_RETURN_IF_ERROR(CheckThreads(service_.has_child() ? 2 * kThreads : kThreads));
  RaiseDescriptorLimit();  // after the forks: workers keep the user's
  DDPRUN_ASSIGN_OR_RETURN(loop_, EventLoop::Create());
  console_ = Console::For(loop_.get(), STDERR_FILENO);
  SetLogWriter([this](absl::string_view lines) { WriteConsole(lines); });
  const std::string hostname = Hostname();
  node_id_ = NodeIdOf(plan_);
  if (!plan_.event_log.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(events_,
                            EventLog::Open(plan_.event_log, absl::StrCat("agent:", node_id_)));
  }
  incarnation_ = rendezvous::Incarnation(RandomNumber() | 1);
  supervisor_ = std::make_unique<Supervisor>(ConfigOf(hostname), loop_->Now());
  // Posted calls run after the events that have come meanwhile.
  timer_ =
      std::make_unique<Timer>(loop_.get(), [this] { loop_->Post([this] { Feed(TimerFired{}); }); });
  const pid_t keeper_pid = keeper_process_->pid;
  DDPRUN_RETURN_IF_ERROR(StartWorkerParts(hostname));
  WatchSignals();
  end_ = std::make_unique<EndSequence>(EndSequence::Parts{.loop = loop_.get(),
                                                          .plan = &plan_,
                                                          .console = console_.get(),
                                                          .workers = workers_.get(),
                                                          .leftovers = leftovers_.get(),
                                                          .service = &service_});
  timer_->Arm(supervisor_->NextDeadline());
  Write("agent_start", {{"node", node_id_},
                        {"host", hostname},
                        {"keeper", keeper_pid},
                        {"guards", guards_.text},
                        {"why_no_cgroup", guards_.why_no_cgroup}});
  if (daemon_.is_there) {
    Write("warm_daemon", {{"leased", !daemon_.ready.empty()}, {"why_not", daemon_.why}});
  }
  return absl::OkStatus();
}

SupervisorConfig Agent::ConfigOf(const std::string& hostname) const {
  SupervisorConfig config;
  config.job = plan_.job;
  config.identity = {.node_id = rendezvous::NodeId(node_id_),
                     .incarnation = incarnation_,
                     .node = {.hostname = hostname,
                              .agent_pid = static_cast<uint32_t>(getpid()),
                              .worker_count = plan_.worker_count,
                              .role = plan_.role,
                              .node_rank = plan_.node_rank,
                              .master_port = master_.port(),
                              .guards = guards_.text,
                              .release = kVersion},
                     .token = plan_.token,
                     .protocol_major = kProtocolMajor};
  config.endpoint = {.text = EndpointText(plan_),
                     .hosts_by_address = plan_.endpoint.hosting == EndpointPlan::Hosting::kAuto,
                     .alone_hint = plan_.endpoint.alone_hint,
                     .name_hint = plan_.endpoint.name_hint};
  config.service = plan_.service;
  config.signals = plan_.signals.policy;
  config.preemption = plan_.signals.preemption;
  config.exit_barrier = plan_.exit_barrier;
  config.ending = plan_.ending;
  config.restart_stopped = plan_.restart_stopped;
  return config;
}

void Agent::WatchSignals() {
  for (const int number : WatchedSignals(plan_.signals.policy)) {
    // If our parent ignored SIGHUP (nohup(1)) or a signal to pass on, keep ignoring it.
    const bool is_passed_on = !plan_.signals.policy.Ends(number);
    if ((number == SIGHUP || is_passed_on) && IsIgnored(number)) continue;
    signals_.push_back(
        std::make_unique<SignalWatch>(loop_.get(), number, [this, number] { OnSignal(number); }));
  }
  if (isatty(STDERR_FILENO) != 1) return;
  signals_.push_back(std::make_unique<SignalWatch>(loop_.get(), SIGWINCH,
                                                   [this] { workers_->OnConsoleResized(); }));
}

// Whether any output of a worker goes to a file.
bool Agent::KeepsLogs() const {
  for (uint32_t local_rank = 0; local_rank < plan_.worker_count; ++local_rank) {
    for (const OutputStream stream : {OutputStream::kStdout, OutputStream::kStderr}) {
      const StreamSink sink = SinkOf(plan_.output, stream, local_rank);
      if (sink == StreamSink::kFile || sink == StreamSink::kTee) return true;
    }
  }
  return false;
}

agent::v1::NodeState Agent::NodeState() const {
  agent::v1::NodeState state;
  state.set_run_id(rendezvous::ValidUtf8(plan_.job.run_id));
  state.set_description(rendezvous::ValidUtf8(plan_.job.description));
  state.set_node_id(rendezvous::ValidUtf8(node_id_));
  state.set_endpoint(rendezvous::ValidUtf8(EndpointText(plan_)));
  state.set_state(supervisor_->StateName());
  state.set_generation(supervisor_->generation().value());
  state.set_worker_count(plan_.worker_count);
  if (client_ != nullptr) {
    state.set_service(rendezvous::ValidUtf8(client_->target()));
  }
  const auto missing = supervisor_->MissingService(loop_->Now());
  if (!missing) return state;
  agent::v1::ServiceAbsence* absence = state.mutable_absence();
  absence->set_for_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(missing->lasted)));
  absence->set_why(rendezvous::ValidUtf8(missing->why));
  absence->set_workers_go_on(missing->workers_go_on);
  if (missing->left != absl::InfiniteDuration()) {
    absence->set_gives_up_in_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(missing->left)));
  }
  return state;
}

absl::Status Agent::StartAgentServer(const std::string& node_address) {
  AgentServerOptions options;
  options.socket_path = runtime_dir_->File(kAgentSocket);
  if (plan_.job.nodes_max > 1) {
    options.peer_listen = "[::]:0";
    options.avoided_ports = GivenPorts(plan_);
  }
  options.run_id = plan_.job.run_id;
  options.node_address = node_address;
  options.worker_count = plan_.worker_count;
  options.max_restarts = plan_.job.max_restarts;
  options.token = plan_.token;
  options.tls = plan_.tls;
  options.node_state = [this] { return NodeState(); };
  options.on_can_rejoin = [this](Generation generation, uint32_t local_rank, bool same_place) {
    Write("worker_can_rejoin", {{"generation", generation.value()}, {"local_rank", local_rank}});
    if (warm_ != nullptr) warm_->OnCanRejoin();
    Feed(WorkerCanRejoin{generation, local_rank, /*can=*/true, same_place});
  };
  options.on_let_go = [this](Generation generation, uint32_t local_rank) {
    Feed(WorkerLetGo{generation, local_rank});
  };
  options.on_can_park = [this](uint32_t local_rank) {
    if (warm_ != nullptr) warm_->OnCanPark(local_rank);
  };
  memory_files_ = std::make_unique<MemoryFiles>(plan_.memory_checkpoints);
  options.keep_memory =
      [this](const agent::v1::KeepMemoryRequest& request) -> absl::StatusOr<agent::v1::KeptMemory> {
    DDPRUN_ASSIGN_OR_RETURN(
        const MemoryFiles::File file,
        memory_files_->Keep(request.local_rank(), request.slot(), request.bytes()));
    agent::v1::KeptMemory kept;
    kept.set_path(file.path);
    kept.set_bytes(file.bytes);
    return kept;
  };
  if (KeepsLogs()) {
    options.logs = std::make_shared<LogCatalog>();
    workers_->set_log_catalog(options.logs);
    if (const absl::Status status = StartLogSampler(options.logs); !status.ok()) {
      Log(LogLevel::kWarning,
          absl::StrCat("ddprun logs --since shows everything: ", status.message()));
    }
  }
  DDPRUN_ASSIGN_OR_RETURN(agent_server_, AgentServer::Start(loop_.get(), std::move(options)));
  return absl::OkStatus();
}

void Agent::StartService() {
  service_.Start(loop_.get(),
                 {.id = node_id_,
                  .incarnation = incarnation_,
                  .folder = &*runtime_dir_,
                  .store_socket = master_.service_socket()},
                 {.connect = [this](const ServiceHost::Target& target) { Connect(target); },
                  .feed = [this](const SupervisorEvent& event) { Feed(event); },
                  .fail = [this](const absl::Status& error) { Fail(error); },
                  .write = [this](const std::string& event,
                                  const nlohmann::json& fields) { Write(event, fields); }});
}

void Agent::Connect(const ServiceHost::Target& target) {
  const FoundEndpoint& found = target.found;
  const bool elected = service_.elected();
  if (agent_server_ == nullptr) {
    if (absl::Status status = StartAgentServer(found.node_address); !status.ok()) {
      return Fail(status);
    }
  }
  Feed(EndpointFound{
      .node_address = found.master_addr,
      .store_address = agent_server_->peer_port() == 0
                           ? ""
                           : HostPort(found.node_address, agent_server_->peer_port()),
      .hosts_service = target.hosts,
      // Also behind a translated address. A member of etcd isn't our endpoint.
      .hosts_endpoint = target.hosts || (found.is_local && !elected),
      .is_strange = target.hosts && !found.is_local && !elected,
      .is_loopback = !elected && IsLoopback(plan_.endpoint.host),
      .port_is_taken = target.port_is_taken,
      .port_advice = target.port_is_taken ? KernelPortsHint(plan_.endpoint.port) : ""});
  client_ = rendezvous::RendezvousClient::Start(
      loop_.get(),
      {.target = target.address,
       .keepalive = rendezvous::KeepaliveOf(plan_.job),
       .lease = rendezvous::LeaseOf(plan_.job),
       .tls = plan_.tls,
       .locator = service_.locator()},
      {.on_stream_open = [this] { Feed(StreamOpened{}); },
       .on_message =
           [this](rendezvous::ServiceMessage message) {
             Feed(ServiceMessageReceived{std::move(message)});
           },
       .on_heartbeat = [this] { Feed(HeartbeatHeard{}); },
       .on_stream_closed =
           [this, target](const absl::Status& status, bool will_retry) {
             if (JoinsAnew(target, status, will_retry)) return;
             Feed(ServiceStreamClosed{status, will_retry});
           }});
}

// Until its first Welcome an agent can join in another way. torchrun completes both kinds of job:
// one node at an endpoint that another job has, and c10d with one --node_rank on several nodes.
//
// A refusal proves that the endpoint isn't for this job. Silence doesn't, for the service of
// another agent of this job may be slow, and the job would run twice: so the wait for it is long.
bool Agent::JoinsAnew(const ServiceHost::Target& target, const absl::Status& why, bool will_retry) {
  if (!supervisor_->joining()) return false;
  EndpointPlan& endpoint = plan_.endpoint;
  const bool alone =
      plan_.job.nodes_max == 1 && endpoint.kind == EndpointPlan::Kind::kTcp &&
      endpoint.hosting == EndpointPlan::Hosting::kAuto &&
      (absl::IsAlreadyExists(why) ||
       (target.port_is_taken && (!will_retry || loop_->Now() - began_ >= kSilentEndpoint)));
  if (alone) {
    Notify(absl::StrCat("warning: ", EndpointText(plan_), " can't be this job's endpoint (",
                        why.message(), "). A job of one node needs none, so it goes on without"));
    endpoint.kind = EndpointPlan::Kind::kUnix;
    plan_.master_addr = target.found.master_addr;
  } else if (plan_.node_rank_is_wish && plan_.node_rank.has_value() &&
             absl::EndsWith(why.message(), rendezvous::kClaimHint)) {
    Notify(absl::StrCat("warning: this node joins without --node_rank ", *plan_.node_rank,
                        ", which ", plan_.rdzv_backend, " doesn't need: ", why.message()));
    plan_.node_rank.reset();
    node_id_ = NodeIdOf(plan_);
  } else {
    return false;
  }
  supervisor_ = std::make_unique<Supervisor>(ConfigOf(Hostname()), loop_->Now());
  timer_->Arm(supervisor_->NextDeadline());
  alone ? service_.HostAlone() : Connect(target);
  return true;
}

// ------------------------------------------------------------- the supervisor

// Effects can cause events (a spawn that fails), which are queued until the effects are done.
void Agent::Feed(const SupervisorEvent& event) {
  if (end_->exit().has_value()) return;
  queued_.push_back(event);
  if (feeding_) return;
  feeding_ = true;
  for (size_t i = 0; i < queued_.size() && !end_->exit().has_value(); ++i) {
    const SupervisorEvent next = std::move(queued_[i]);
    for (const SupervisorEffect& effect : supervisor_->Step(loop_->Now(), next)) {
      std::visit([this](const auto& e) { Do(e); }, effect);
    }
  }
  queued_.clear();
  feeding_ = false;
  timer_->Arm(supervisor_->NextDeadline());
  if (supervisor_->is_ending()) service_.StartNoMore();
}

void Agent::Do(const SendMessage& effect) {
  if (client_ == nullptr) return;
  if (!std::holds_alternative<rendezvous::Renewal>(effect.message.body)) {
    client_->Send(effect.message);
    return;
  }
  rendezvous::AgentMessage message = effect.message;
  hangs_->FillIn(message);
  auto& renewal = std::get<rendezvous::Renewal>(message.body);
  renewal.warm = WarmUse();
  renewal.gpus = gpu_watch_->Take(loop_->Now());
  if (memory_files_ != nullptr) renewal.checkpoint_bytes = memory_files_->BytesHeld();
  client_->SendRenewal(message, hangs_->training());
}

void Agent::Do(const FinishStream& /*effect*/) {
  if (client_ != nullptr) client_->Finish();
}

void Agent::Do(const EndGeneration& effect) {
  StartWorkers(absl::OkStatus());  // if they still wait for their store
  agent_server_->EndGeneration(effect.generation, effect.why);
  master_.End();
}

void Agent::Do(const NotifyUser& effect) {
  switch (effect.level) {
    case NotifyUser::Level::kInfo:
      return Log(LogLevel::kInfo, effect.text);
    case NotifyUser::Level::kWarning:
      return Notify(effect.text);
    case NotifyUser::Level::kError:
      return Notify(absl::StrCat("error: ", effect.text));
  }
}

void Agent::Do(const Record& effect) {
  nlohmann::json fields;
  for (const auto& [key, value] : effect.fields) fields[key] = value;
  Write(effect.event, fields);
}

// Writes lines for the user and the log to stderr. Threads: any.
void Agent::WriteConsole(absl::string_view lines) {
  const auto write = [](Console* console, absl::string_view text) {
    if (console->waiting() < kConsoleBytesMax) console->Write(text);
  };
  if (loop_->OnLoop()) return write(console_.get(), lines);
  loop_->Post(
      [write, console = console_, text = std::string(lines)] { write(console.get(), text); });
}

void Agent::Fail(const absl::Status& error) {
  Notify(absl::StrCat("error: ", error.message()));
  if (!end_->exit().has_value()) Do(Exit{.status = 1, .why = std::string(error.message())});
}

// Writes files before the console, because the console may block.
void Agent::Do(const Exit& effect) {
  WriteEndFiles(plan_, node_id_, effect);
  KeepEnd(effect);
  Write("agent_exit", {{"status", effect.status}});
  if (side_channels_ != nullptr) side_channels_->OnExit(!effect.verdict.has_value());
  end_->Begin(effect);
}

// An agent that had neither workers nor a verdict had no job: it was refused, or stopped while it
// waited for other nodes.
void Agent::KeepEnd(const Exit& exit) {
  if (plan_.preflight == Preflight::kTest) return;
  if (!exit.verdict.has_value() && supervisor_->generation() == Generation()) return;
  EndedJob job = EndedJobOf(plan_, node_id_, exit, MonotonicNow() - began_, /*now=*/absl::Now());
  job.generation =
      std::max(job.generation, static_cast<int64_t>(supervisor_->generation().value()));
  if (KeepsLogs()) job.logs = log_folders_.folder();
  end_kept_ = KeepEndedJob(std::move(job), supervisor_->term().value());
}

// This needs a handler also after the job's end, because PID 1 of a container has no default
// action.
void Agent::OnSignal(int number) {
  if (!end_->exit().has_value()) return Feed(SignalReceived{number});
  if (plan_.signals.policy.Ends(number)) end_->Cut();
}

void Agent::Write(const std::string& event, const nlohmann::json& fields) {
  events_.Write(loop_->Now(), event, fields);
}

}  // namespace ddprun::launcher
