#include "launcher/agent/agent.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/clock.h"
#include "base/fd.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/rng.h"
#include "base/status_macros.h"
#include "base/version.h"
#include "launcher/agent/end_report.h"
#include "launcher/agent/log_catalog.h"
#include "launcher/core/output_layout.h"
#include "launcher/os/folders.h"
#include "rendezvous/wire/text.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;

bool IsIgnored(int number) {
  struct sigaction action {};
  return sigaction(number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Agent>> Agent::Prepare(LaunchPlan plan) {
  std::unique_ptr<Agent> agent(new Agent(std::move(plan)));
  DDPRUN_ASSIGN_OR_RETURN(RuntimeDir runtime_dir, RuntimeDir::Create());
  agent->runtime_dir_.emplace(std::move(runtime_dir));
  const LaunchPlan& p = agent->plan_;
  const absl::Status port = agent->master_.TakePort();
  if (!port.ok() && IsRankZero(p)) {
    return absl::UnavailableError(
        absl::StrCat("--master_port: ", port.message(),
                     "; choose another one, or leave the option out to get a free one"));
  }
  const std::string cgroup = agent->MakeGuards();
  DDPRUN_ASSIGN_OR_RETURN(
      KeeperProcess keeper,
      ForkKeeper({.isolation_timeout = p.isolation_timeout,
                  .remove_folder = agent->runtime_dir_->path(),
                  .remove_empty_folders =
                      agent->log_folders_.temporary() ? agent->log_folders_.root() : "",
                  .cgroup = cgroup}));
  agent->keeper_process_.emplace(std::move(keeper));
  if (p.endpoint.hosting != EndpointPlan::Hosting::kNever) {
    DDPRUN_ASSIGN_OR_RETURN(
        agent->service_,
        ServiceChild::Fork({agent->keeper_process_->channel.get(), agent->master_.socket()}));
  }
  return agent;
}

Agent::~Agent() {
  // In the order in which they hold on to each other; the loop last, since all have handles on it.
  client_.reset();
  master_.End();
  if (agent_server_ != nullptr) agent_server_->Shutdown("the agent ends");
  agent_server_.reset();
  finder_.reset();
  keeper_.reset();
  side_channels_.reset();
  stop_steps_.reset();
  hangs_.reset();
  gpus_.reset();
  workers_.reset();
  service_.reset();
  elected_.reset();
  timer_.reset();
  signals_.clear();
  if (log_folders_.temporary()) RemoveEmptyFolders(log_folders_.root());
}

int Agent::Run() {
  // Writing to a console that is gone is an error to ignore, not a reason to die.
  signal(SIGPIPE, SIG_IGN);
  if (absl::Status status = StartParts(); !status.ok()) {
    Tell(absl::StrCat("error: ", status.message()));
    ReportEnd(plan_, node_id_, Exit{.status = 1, .why = std::string(status.message())});
    return 1;
  }
  loop_->Post([this] { StartEndpoint(); });  // what fails in there ends a loop that runs
  loop_->Run();
  DDPRUN_CHECK(exit_.has_value(), "the loop ends with an exit status");
  return exit_->status;
}

absl::Status Agent::StartParts() {
  RaiseDescriptorLimit();  // after the forks: workers keep the user's
  DDPRUN_ASSIGN_OR_RETURN(loop_, EventLoop::Create());
  const std::string hostname = Hostname();
  node_id_ = plan_.node_rank.has_value() ? absl::StrCat(hostname, "/", *plan_.node_rank)
                                         : absl::StrCat(hostname, "#", getpid());
  if (!plan_.event_log.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(events_,
                            EventLog::Open(plan_.event_log, absl::StrCat("agent:", node_id_)));
  }

  SupervisorConfig config;
  config.job = plan_.job;
  config.identity = {.node_id = rendezvous::NodeId(node_id_),
                     .incarnation = rendezvous::Incarnation(RandomNumber() | 1),
                     .node = {.hostname = hostname,
                              .agent_pid = static_cast<uint32_t>(getpid()),
                              .worker_count = plan_.worker_count,
                              .role = plan_.role,
                              .node_rank = plan_.node_rank,
                              .master_port = master_.port(),
                              .guards = guards_},
                     .token = plan_.token,
                     .release = kVersion,
                     .protocol_major = kProtocolMajor};
  endpoint_name_ = plan_.endpoint.kind == EndpointPlan::Kind::kUnix ? "this node"
                   : plan_.etcd.has_value()
                       ? absl::StrCat("etcd at ", absl::StrJoin(plan_.etcd->endpoints, ", "))
                       : HostPort(plan_.endpoint.host, plan_.endpoint.port);
  config.endpoint = {.text = endpoint_name_,
                     .hosts_by_address = plan_.endpoint.hosting == EndpointPlan::Hosting::kAuto};
  config.service = plan_.service;
  config.signals = plan_.signals.policy;
  config.preemption = plan_.signals.preemption;
  config.exit_barrier = plan_.exit_barrier;
  config.ending = plan_.ending;
  config.restart_stopped = plan_.restart_stopped;
  supervisor_ = std::make_unique<Supervisor>(config, loop_->Now());

  timer_ = std::make_unique<Timer>(loop_.get(), [this] { Feed(TimerFired{}); });
  workers_ = std::make_unique<WorkerLauncher>(loop_.get(), &plan_, &log_folders_, hostname,
                                              runtime_dir_->File(kAgentSocket));
  const pid_t keeper_pid = keeper_process_->pid;
  keeper_ = KeeperClient::Create(loop_.get(), *std::move(keeper_process_), KeeperCallbacks());
  DDPRUN_RETURN_IF_ERROR(StartSideChannels(hostname));
  StartHangMonitor();
  gpus_ = std::make_unique<GpuRelease>(loop_.get(), plan_.gpu_memory_wait);
  gpu_watch_ = std::make_unique<GpuWatch>();
  WatchSignals();
  timer_->Arm(supervisor_->NextDeadline());
  Write("agent_start", {{"node", node_id_},
                        {"host", hostname},
                        {"keeper", keeper_pid},
                        {"guards", guards_},
                        {"why_no_cgroup", why_no_cgroup_}});
  return absl::OkStatus();
}

absl::Status Agent::StartSideChannels(const std::string& hostname) {
  SideChannels::Hooks hooks;
  hooks.signal_worker = [this](uint64_t generation, pid_t pid, int number) {
    keeper_->SignalWorker(generation, pid, number);
  };
  hooks.state = [this] { return supervisor_->StateName(); };
  hooks.record = [this](const std::string& text) { Write("timer_expired", {{"why", text}}); };
  DDPRUN_ASSIGN_OR_RETURN(side_channels_,
                          SideChannels::Create(
                              loop_.get(), &plan_, hostname, runtime_dir_->File("watchdog_timer"),
                              [](const std::string& name) -> std::optional<std::string> {
                                const char* value = std::getenv(name.c_str());
                                if (value == nullptr) return std::nullopt;
                                return value;
                              },
                              std::move(hooks)));
  workers_->set_timer_file(side_channels_->timer_file());
  if (side_channels_->health_port() != 0) {
    Write("health_checks", {{"port", side_channels_->health_port()}});
  }
  return absl::OkStatus();
}

void Agent::StartHangMonitor() {
  HangMonitor::Hooks hooks;
  hooks.found = [this](ProgressFound found) { Feed(std::move(found)); };
  hooks.end_worker = [this](Generation generation, WorkerEnd end) {
    FeedEnd(generation, workers_->DescribeHung(std::move(end)));
  };
  hooks.record = [this](const std::string& event, auto fields) {
    Do(Record{event, std::move(fields)});
  };
  hangs_ = std::make_unique<HangMonitor>(loop_.get(), &plan_, std::move(hooks));
  stop_steps_ = std::make_unique<StopSteps>(loop_.get(), hangs_.get(),
                                            [this](const StopStepLooked& looked) { Feed(looked); });
  workers_->set_progress_page(
      [this](uint32_t local_rank) { return hangs_->page_path(local_rank); });
}

void Agent::WatchSignals() {
  for (const int number : WatchedSignals(plan_.signals.policy)) {
    // nohup(1) and its kin: who ignored it for us meant it.
    if (number == SIGHUP && IsIgnored(number)) continue;
    signals_.push_back(std::make_unique<SignalWatch>(
        loop_.get(), number, [this, number] { Feed(SignalReceived{number}); }));
  }
}

// ------------------------------------------------------------- the service and the way to it

void Agent::StartEndpoint() {
  if (plan_.endpoint.kind == EndpointPlan::Kind::kUnix) {
    const FoundEndpoint found{
        .is_local = true,
        .loopback = true,
        .node_address = plan_.master_addr.empty() ? "127.0.0.1" : plan_.master_addr,
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
  // A loopback endpoint is for this machine alone; any other is reached over any interface, also a
  // name that means a loopback address on its own machine only (Debian's 127.0.1.1).
  const bool for_others = plan_.job.nodes_max > 1 && !IsLoopback(endpoint.host);
  const std::string listen_host = found.loopback && !for_others ? found.literal : "::";
  Host(found, HostPort(listen_host, endpoint.port));
}

// Whichever node has the service, none is its host: it is taken over when that one is lost.
void Agent::StandForService(const FoundEndpoint& found) {
  absl::StatusOr<std::unique_ptr<ElectedService>> elected = ElectedService::Create(
      loop_.get(), *plan_.etcd,
      {.listen = IsLoopback(found.node_address) ? "127.0.0.1:0" : "[::]:0",
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
           [this](int port, pid_t pid) {
             Log(LogLevel::kInfo, "this node serves the job");
             Write("service_started", {{"port", port}, {"service_pid", pid}});
           },
       .on_gone =
           [this](const std::string& how) {
             Tell(absl::StrCat("the rendezvous service of this node ", how,
                               "; another one takes the job over, workers go on"));
             Write("service_gone", {{"how", how}});
           },
       .on_trouble = [](const std::string& text) { Tell(absl::StrCat("warning: ", text)); }});
  if (!elected.ok()) return Fail(elected.status());
  elected_ = *std::move(elected);
  Connect("", found, /*hosts=*/false);
}

// Where the service keeps what must outlive it; "" = nothing does, for want of a folder that nobody
// asked for.
absl::StatusOr<std::string> Agent::MakeStateDir() const {
  const bool given = !plan_.state_dir.empty();
  const std::string path = given ? plan_.state_dir : runtime_dir_->File(kServiceState);
  const absl::Status made = MakeWritableFolder(path);
  if (made.ok()) return path;
  if (given) return absl::FailedPreconditionError(absl::StrCat("--state_dir: ", made.message()));
  Tell(absl::StrCat("warning: a rendezvous service that dies will have forgotten the job: ",
                    made.message()));
  return "";
}

void Agent::Host(const FoundEndpoint& found, const std::string& listen) {
  const absl::StatusOr<std::string> state_dir = MakeStateDir();
  if (!state_dir.ok()) return Fail(state_dir.status());
  service_->Serve(
      loop_.get(),
      {.listen = listen,
       .token = plan_.token,
       .tls = plan_.tls,
       .run_id = plan_.job.run_id,
       .event_log = plan_.event_log,
       .status_page = plan_.status_page,
       .status_page_token = plan_.status_page_token,
       .state_dir = *state_dir,
       .state_outlives_machine = !plan_.state_dir.empty()},
      plan_.service.loss,
      {.on_ready = [this,
                    found](absl::StatusOr<int> port) { OnServiceReady(found, std::move(port)); },
       .on_trouble = [](const std::string& text) { Tell(text); },
       .on_restarted =
           [this](const ServiceChild::Restarted& restarted) { OnServiceRestarted(restarted); },
       .on_exit = [this](const std::string& how) { Feed(ServiceExited{how}); }});
}

// It has the state of the one that died, or a new one; its agents see by themselves that it is
// back.
void Agent::OnServiceRestarted(const ServiceChild::Restarted& restarted) {
  const int64_t ms = absl::ToInt64Milliseconds(restarted.missing);
  Tell(absl::StrCat("the rendezvous service ", restarted.how, "; started again after ", ms,
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
    // An address that is translated on the way here may not lead back from here.
    const std::string host = found.loopback   ? found.literal
                             : found.is_local ? endpoint.host
                                              : "127.0.0.1";
    return Connect(HostPort(host, *port), found, true);
  }
  const bool may_join =
      endpoint.kind == EndpointPlan::Kind::kTcp && endpoint.hosting == EndpointPlan::Hosting::kAuto;
  if (!may_join) return Fail(port.status());
  // Another agent of this machine is quicker: its service is ours too.
  service_.reset();
  Connect(HostPort(endpoint.host, endpoint.port), found, /*hosts=*/false);
}

void Agent::Connect(const std::string& target, const FoundEndpoint& found, bool hosts) {
  if (absl::Status status = StartAgentServer(found.node_address); !status.ok()) {
    return Fail(status);
  }
  Feed(
      EndpointFound{.node_address = found.node_address,
                    .store_address = agent_server_->peer_port() == 0
                                         ? ""
                                         : HostPort(found.node_address, agent_server_->peer_port()),
                    .hosts_service = hosts,
                    // Also behind a translated address; a member of etcd is no endpoint of ours.
                    .hosts_endpoint = hosts || (found.is_local && elected_ == nullptr),
                    .is_loopback = elected_ == nullptr && IsLoopback(plan_.endpoint.host)});
  client_ = rendezvous::RendezvousClient::Start(
      loop_.get(),
      {.target = target,
       .keepalive = rendezvous::KeepaliveOf(plan_.job),
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
  state.set_endpoint(rendezvous::ValidUtf8(endpoint_name_));
  state.set_state(supervisor_->StateName());
  state.set_generation(supervisor_->generation().value());
  const auto missing = supervisor_->MissingService(loop_->Now());
  if (!missing) return state;
  agent::v1::ServiceAbsence* absence = state.mutable_absence();
  absence->set_for_ms(absl::ToInt64Milliseconds(missing->lasted));
  absence->set_why(rendezvous::ValidUtf8(missing->why));
  absence->set_workers_go_on(missing->workers_go_on);
  if (missing->left != absl::InfiniteDuration()) {
    absence->set_gives_up_in_ms(absl::ToInt64Milliseconds(missing->left));
  }
  return state;
}

absl::Status Agent::StartAgentServer(const std::string& node_address) {
  AgentServerOptions options;
  options.socket_path = runtime_dir_->File(kAgentSocket);
  if (plan_.job.nodes_max > 1) {
    options.peer_listen = IsLoopback(node_address) ? "127.0.0.1:0" : "[::]:0";
  }
  options.run_id = plan_.job.run_id;
  options.node_address = node_address;
  options.worker_count = plan_.worker_count;
  options.max_restarts = plan_.job.max_restarts;
  options.token = plan_.token;
  options.tls = plan_.tls;
  options.node_state = [this] { return NodeState(); };
  if (KeepsLogs()) {
    options.logs = std::make_shared<LogCatalog>();
    workers_->set_log_catalog(options.logs);
  }
  DDPRUN_ASSIGN_OR_RETURN(agent_server_, AgentServer::Start(loop_.get(), std::move(options)));
  return absl::OkStatus();
}

// ------------------------------------------------------------- the supervisor

// Effects can give rise to events (a spawn that fails); those wait until the effects are done.
void Agent::Feed(const SupervisorEvent& event) {
  if (exit_.has_value()) return;
  queued_.push_back(event);
  if (feeding_) return;
  feeding_ = true;
  for (size_t i = 0; i < queued_.size() && !exit_.has_value(); ++i) {
    const SupervisorEvent next = std::move(queued_[i]);
    for (const SupervisorEffect& effect : supervisor_->Step(loop_->Now(), next)) {
      std::visit([this](const auto& e) { Do(e); }, effect);
    }
  }
  queued_.clear();
  feeding_ = false;
  timer_->Arm(supervisor_->NextDeadline());
  if (service_ != nullptr && supervisor_->is_ending()) service_->StartNoMore();
}

void Agent::Do(const SendMessage& effect) {
  if (client_ == nullptr) return;
  if (!std::holds_alternative<rendezvous::Renewal>(effect.message.body)) {
    client_->Send(effect.message);
    return;
  }
  rendezvous::AgentMessage message = effect.message;
  hangs_->FillIn(message);
  std::get<rendezvous::Renewal>(message.body).gpus = gpu_watch_->Take(loop_->Now());
  client_->Send(message);
}

void Agent::Do(const FinishStream& /*effect*/) {
  if (client_ != nullptr) client_->Finish();
}

void Agent::Do(const SpawnGroup& effect) {
  agent_server_->BeginGeneration(effect.assignment);
  side_channels_->OnAssignment(effect.assignment);
  Write("spawn", {{"generation", effect.assignment.generation.value()}});
  hangs_->Begin(effect.assignment);
  stop_steps_->Begin();
  absl::Status status = master_.Begin(loop_.get(), effect.assignment);
  if (status.ok()) status = workers_->Start(keeper_.get(), effect.assignment);
  if (status.ok()) return;
  // What could not be spawned has failed; what could is stopped as with any failure.
  for (uint32_t local_rank = 0; local_rank < plan_.worker_count; ++local_rank) {
    FeedEnd(effect.assignment.generation, workers_->DescribeStartFailure(local_rank, status));
  }
}

void Agent::Do(const SignalGroup& effect) {
  if (effect.stops) hangs_->CloseBook();
  keeper_->Signal(effect.generation.value(), effect.signal);
}

void Agent::Do(const SweepGroup& effect) {
  hangs_->CloseBook();
  keeper_->Sweep(effect.generation.value());
}

void Agent::Do(const EndGeneration& effect) {
  agent_server_->EndGeneration(effect.generation, effect.why);
  master_.End();
}

void Agent::Do(const TellUser& effect) {
  switch (effect.level) {
    case TellUser::Level::kInfo:
      return Log(LogLevel::kInfo, effect.text);
    case TellUser::Level::kWarning:
      return Tell(effect.text);
    case TellUser::Level::kError:
      return Tell(absl::StrCat("error: ", effect.text));
  }
}

void Agent::Do(const Record& effect) {
  nlohmann::json fields;
  for (const auto& [key, value] : effect.fields) fields[key] = value;
  Write(effect.event, std::move(fields));
}

void Agent::Do(const Exit& effect) {
  exit_ = effect;
  Write("agent_exit", {{"status", exit_->status}});
  if (side_channels_ != nullptr) side_channels_->OnExit(!effect.verdict.has_value());
  workers_->set_on_drained([this] { StopWhenDrained(); });
  // Output that a slow console has not taken yet is not lost; another Ctrl-C gives it up.
  signals_.clear();
  for (const int number : WatchedSignals(plan_.signals.policy)) {
    if (!IsIgnored(number)) signal(number, plan_.signals.policy.Ends(number) ? SIG_DFL : SIG_IGN);
  }
  StopWhenDrained();
}

void Agent::StopWhenDrained() {
  if (!workers_->Drained()) return;
  if (elected_ != nullptr && !std::exchange(left_service_, true)) {
    return elected_->End(/*job_over=*/exit_->verdict.has_value(), [this] { StopWhenDrained(); });
  }
  ReportEnd(plan_, node_id_, *exit_);
  loop_->Stop();
}

void Agent::Fail(const absl::Status& error) {
  Tell(absl::StrCat("error: ", error.message()));
  if (!exit_.has_value()) Do(Exit{.status = 1, .why = std::string(error.message())});
}

void Agent::Write(const std::string& event, nlohmann::json fields) {
  events_.Write(loop_->Now(), event, std::move(fields));
}

}  // namespace ddprun::launcher
