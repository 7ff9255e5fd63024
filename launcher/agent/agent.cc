#include "launcher/agent/agent.h"

#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
#include "launcher/os/files.h"
#include "launcher/os/processes.h"
#include "rendezvous/wire/field_checker.h"

namespace ddprun::launcher {
namespace {

using rendezvous::Generation;

// How long an agent waits at its end until the record of its job is written: the file server of a
// home folder may be unreachable.
constexpr absl::Duration kKeptLimit = absl::Milliseconds(200);
// How much is kept for a console that doesn't accept lines; more is lost.
constexpr size_t kConsoleBytesMax = 1 << 20;

// Threads of a process that uses gRPC on a small machine: the agent, and its service.
constexpr int kThreads = 12;
// A job of one worker doesn't start with fewer. A job that needs more fails at the missing one,
// with a message.
constexpr uint64_t kDescriptorsMin = 28;

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
  const LaunchPlan& p = agent->plan_;
  const absl::Status port = agent->master_.TakePort();
  if (!port.ok() && IsRankZero(p)) {
    return absl::UnavailableError(absl::StrCat("--master_port: ", port.message(),
                                               ", or leave the option out to get a free one"));
  }
  DDPRUN_RETURN_IF_ERROR(agent->TakeKeeper(ProcessEnvironment, agent->MakeGuards(), node_socket));
  if (p.endpoint.hosting != EndpointPlan::Hosting::kNever) {
    DDPRUN_ASSIGN_OR_RETURN(agent->service_, ServiceChild::Fork(agent->FdsOfThisProcess()));
  }
  return agent;
}

Agent::~Agent() {
  // In the order in which they use each other; the loop last, because all have handles of it.
  client_.reset();
  master_.End();
  if (agent_server_ != nullptr) agent_server_->Shutdown("the agent ends");
  agent_server_.reset();
  finder_.reset();
  warm_.reset();
  keeper_.reset();
  side_channels_.reset();
  stop_steps_.reset();
  notices_.reset();
  hangs_.reset();
  gpus_.reset();
  workers_.reset();
  service_.reset();
  elected_.reset();
  timer_.reset();
  console_limit_.reset();
  leftovers_notice_.reset();
  signals_.clear();
  SetLogWriter(nullptr);
  console_.reset();
  if (log_folders_.temporary()) RemoveEmptyFolders(log_folders_.root());
}

int Agent::Run() {
  // Writing to a console that is gone is an error to ignore, not a reason to die.
  signal(SIGPIPE, SIG_IGN);
  if (absl::Status status = StartParts(); !status.ok()) {
    Notify(absl::StrCat("error: ", status.message()));
    WriteEndFiles(plan_, node_id_, Exit{.status = 1, .why = std::string(status.message())});
    return 1;
  }
  loop_->Post([this] { StartEndpoint(); });  // posted, because a failure in it stops the loop
  loop_->Run();
  DDPRUN_CHECK(exit_.has_value(), "the loop ends with an exit status");
  if (end_kept_ != nullptr) end_kept_->WaitForNotificationWithTimeout(kKeptLimit);
  return exit_->status;
}

absl::Status Agent::StartParts() {
  DDPRUN_RETURN_IF_ERROR(CheckThreads(service_ == nullptr ? kThreads : 2 * kThreads));
  RaiseDescriptorLimit();  // after the forks: workers keep the user's
  DDPRUN_ASSIGN_OR_RETURN(loop_, EventLoop::Create());
  console_ = Console::For(loop_.get(), STDERR_FILENO);
  SetLogWriter([this](absl::string_view lines) { WriteConsole(lines); });
  const std::string hostname = Hostname();
  node_id_ = plan_.node_rank.has_value() ? absl::StrCat(hostname, "/", *plan_.node_rank)
                                         : absl::StrCat(hostname, "#", getpid());
  if (!plan_.event_log.empty()) {
    DDPRUN_ASSIGN_OR_RETURN(events_,
                            EventLog::Open(plan_.event_log, absl::StrCat("agent:", node_id_)));
  }
  incarnation_ = rendezvous::Incarnation(RandomNumber() | 1);
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
                              .guards = guards_,
                              .release = kVersion},
                     .token = plan_.token,
                     .protocol_major = kProtocolMajor};
  endpoint_name_ = plan_.endpoint.kind == EndpointPlan::Kind::kUnix ? "this node"
                   : plan_.etcd.has_value()
                       ? absl::StrCat(kEtcdEndpoint, absl::StrJoin(plan_.etcd->endpoints, ", "))
                       : HostPort(plan_.endpoint.host, plan_.endpoint.port);
  config.endpoint = {.text = endpoint_name_,
                     .hosts_by_address = plan_.endpoint.hosting == EndpointPlan::Hosting::kAuto,
                     .alone_hint = plan_.endpoint.alone_hint,
                     .name_hint = plan_.endpoint.name_hint};
  config.service = plan_.service;
  config.signals = plan_.signals.policy;
  config.preemption = plan_.signals.preemption;
  config.exit_barrier = plan_.exit_barrier;
  config.ending = plan_.ending;
  config.restart_stopped = plan_.restart_stopped;
  supervisor_ = std::make_unique<Supervisor>(config, loop_->Now());

  // Posted calls run after the events that have come meanwhile.
  timer_ =
      std::make_unique<Timer>(loop_.get(), [this] { loop_->Post([this] { Feed(TimerFired{}); }); });
  workers_ = std::make_unique<WorkerLauncher>(loop_.get(), &plan_, &log_folders_, hostname,
                                              runtime_dir_->File(kAgentSocket));
  const pid_t keeper_pid = keeper_process_->pid;
  keeper_ = KeeperClient::Create(loop_.get(), *std::move(keeper_process_), KeeperCallbacks());
  StartMarks();
  DDPRUN_RETURN_IF_ERROR(StartWarm());
  workers_->set_prepare([this](SpawnRequest* request) { PrepareWorker(request); });
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
  if (daemon_.is_there) {
    Write("warm_daemon", {{"leased", !daemon_.ready.empty()}, {"why_not", daemon_.why}});
  }
  return absl::OkStatus();
}

absl::Status Agent::StartSideChannels(const std::string& hostname) {
  SideChannels::Hooks hooks;
  hooks.signal_worker = [this](uint64_t generation, pid_t pid, int number) {
    keeper_->SignalWorker(generation, pid, number);
  };
  hooks.state = [this] { return supervisor_->StateName(); };
  hooks.record = [this](const std::string& text) { Write("timer_expired", {{"why", text}}); };
  hooks.finished = [this](uint32_t local_rank) {
    hangs_->OnFinished(local_rank);
    Feed(WorkerCanRejoin{supervisor_->generation(), local_rank, /*can=*/false});
    Write("worker_finished", {{"local_rank", local_rank}});
  };
  DDPRUN_ASSIGN_OR_RETURN(
      side_channels_, SideChannels::Create(loop_.get(), &plan_, hostname,
                                           {.timer_file = runtime_dir_->File("watchdog_timer"),
                                            .finish_barrier = runtime_dir_->File("finished.sock")},
                                           ProcessEnvironment, std::move(hooks)));
  workers_->set_side_channels(side_channels_->timer_file(), side_channels_->finish_barrier());
  if (side_channels_->health_port() != 0) {
    Write("health_checks", {{"port", side_channels_->health_port()}});
  }
  return absl::OkStatus();
}

void Agent::StartMarks() {
  const StepMarks::Settings settings = {.count_steps = plan_.count_steps,
                                        .in_process_restart = plan_.in_process_restart};
  if (!plan_.runs_python || !(settings.count_steps || settings.in_process_restart)) return;
  absl::StatusOr<StepMarks> marks = StepMarks::Create(runtime_dir_->File("marks"), settings);
  if (!marks.ok()) {
    return Notify(absl::StrCat("warning: the steps of scripts that mark nothing are not counted",
                               settings.in_process_restart ? ", and a failure restarts all" : "",
                               ": ", marks.status().message()));
  }
  marks_.emplace(*std::move(marks));
}

// Completes the request to start a worker.
void Agent::PrepareWorker(SpawnRequest* request) {
  if (marks_.has_value()) marks_->Prepare(ProcessEnvironment, &request->environment);
  if (warm_ != nullptr) warm_->Prepare(request);
}

absl::Status Agent::StartWarm() {
  if (!plan_.warm.on && !plan_.warm.for_survivors) return absl::OkStatus();
  if (const std::string why = WhyCold(plan_); !why.empty()) {
    if (plan_.warm.on && !plan_.warm.unasked) {
      Notify(absl::StrCat("--warm on: workers start cold: ", why));
    }
    return absl::OkStatus();
  }
  WarmStarts::Hooks hooks;
  hooks.record = [this](const std::string& event, auto fields) {
    Do(Record{event, std::move(fields)});
  };
  hooks.tell = [](const std::string& text) { Notify(text); };
  hooks.settled = [this] { NotifySettled(daemon_.connection); };
  hooks.prepare = [this](std::vector<std::string>* environment) {
    if (marks_.has_value()) marks_->Prepare(ProcessEnvironment, environment);
  };
  DDPRUN_ASSIGN_OR_RETURN(
      warm_, WarmStarts::Create(loop_.get(), &plan_, keeper_.get(), runtime_dir_->File("warm"),
                                ProcessEnvironment,
                                daemon_.ready.empty() ? std::nullopt : std::optional(daemon_.ready),
                                std::move(hooks)));
  return absl::OkStatus();
}

// The state of warm starts for `ddprun status` and the page; nullopt = not worth showing.
std::optional<rendezvous::WarmUse> Agent::WarmUse() {
  if (warm_ == nullptr) {
    if (!plan_.warm.on || plan_.warm.unasked) return std::nullopt;
    return rendezvous::WarmUse{.why_cold = WhyCold(plan_)};
  }
  warm_->LookAround();
  if (!warm_->shows()) return std::nullopt;
  WarmStarts::Use use = warm_->use();
  return rendezvous::WarmUse{.warm_workers = use.warm,
                             .cold_workers = use.cold,
                             .saved = use.saved,
                             .parked_bytes = use.parked_bytes,
                             .why_cold = std::move(use.why_cold)};
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
  notices_ = std::make_unique<WorkerNotices>(loop_.get(), &plan_, NoticeHooks());
  master_.set_on_client([this](const StoreClient& client) { notices_->OnStoreClient(client); });
  stop_steps_ = std::make_unique<StopSteps>(loop_.get(), hangs_.get(),
                                            [this](const StopStepLooked& looked) { Feed(looked); });
  workers_->set_progress_page(
      [this](uint32_t local_rank) { return hangs_->page_path(local_rank); });
}

void Agent::WatchSignals() {
  for (const int number : WatchedSignals(plan_.signals.policy)) {
    // If our parent ignored SIGHUP (nohup(1)), keep ignoring it.
    if (number == SIGHUP && IsIgnored(number)) continue;
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
  state.set_endpoint(rendezvous::ValidUtf8(endpoint_name_));
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
    options.peer_listen = ListenFor(node_address);
    options.avoided_ports = GivenPorts(plan_);
  }
  options.run_id = plan_.job.run_id;
  options.node_address = node_address;
  options.worker_count = plan_.worker_count;
  options.max_restarts = plan_.job.max_restarts;
  options.token = plan_.token;
  options.tls = plan_.tls;
  options.node_state = [this] { return NodeState(); };
  options.on_can_rejoin = [this](Generation generation, uint32_t local_rank) {
    Write("worker_can_rejoin", {{"generation", generation.value()}, {"local_rank", local_rank}});
    if (warm_ != nullptr) warm_->OnCanRejoin();
    Feed(WorkerCanRejoin{generation, local_rank});
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

// ------------------------------------------------------------- the supervisor

// Effects can cause events (a spawn that fails), which are queued until the effects are done.
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
  if (!exit_.has_value()) Do(Exit{.status = 1, .why = std::string(error.message())});
}

void Agent::Write(const std::string& event, const nlohmann::json& fields) {
  events_.Write(loop_->Now(), event, fields);
}

}  // namespace ddprun::launcher
