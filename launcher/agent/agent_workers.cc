// The agent's side of its workers: their cgroup and keeper, how they start and are stopped, and the
// keeper's events about them.
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/address.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "launcher/agent/agent.h"
#include "launcher/os/cgroup.h"
#include "rendezvous/core/worker_failure.h"

namespace ddprun::launcher {

using rendezvous::Generation;

namespace {

// Whether other machines can't reach this one at `host`, or reach themselves there.
bool MeansItself(const std::string& host) {
  return IsLoopback(host) || host == "0.0.0.0" || host == "::" || host == "[::]";
}

// The assignment as this node can use it. Rank 0's node may be given as localhost on itself, where
// the service runs; other nodes reach it where they reach the service. But if the user gives a
// loopback address of this node too (--local_addr), all nodes are on one machine.
rendezvous::Assignment SeenFrom(const LaunchPlan& plan, rendezvous::Assignment assignment) {
  if (!plan.first_node.empty()) assignment.master_addr = plan.first_node;
  const EndpointPlan& endpoint = plan.endpoint;
  if (assignment.group_rank == 0 || endpoint.kind != EndpointPlan::Kind::kTcp ||
      plan.etcd.has_value() || MeansItself(endpoint.host) || MeansItself(plan.local_addr)) {
    return assignment;
  }
  if (MeansItself(assignment.master_addr)) assignment.master_addr = endpoint.host;
  std::string& store = assignment.store_address;
  int port = 0;
  const size_t colon = store.rfind(':');
  if (colon != std::string::npos && MeansItself(store.substr(0, colon)) &&
      absl::SimpleAtoi(store.substr(colon + 1), &port)) {
    store = HostPort(endpoint.host, port);
  }
  return assignment;
}

}  // namespace

Agent::Guards Agent::MakeGuards(bool use_cgroup) {
  Guards guards;
  guards.text = "keeper, parent-death signal, isolation timeout";
  absl::StatusOr<std::string> cgroup =
      use_cgroup ? MakeWorkerCgroup() : absl::FailedPreconditionError("--cgroup off");
  if (!cgroup.ok()) {
    guards.why_no_cgroup = std::string(cgroup.status().message());
    return guards;
  }
  guards.text += ", cgroup";
  guards.cgroup_claim = ClaimCgroup(*cgroup);
  guards.cgroup = *std::move(cgroup);
  return guards;
}

absl::Status Agent::TakeKeeper(const EnvironmentLookup& environment, int node_socket) {
  const KeeperOptions options{
      .isolation_timeout = plan_.isolation_timeout,
      .remove_folder = runtime_dir_->path(),
      .remove_empty_folders = log_folders_.temporary() ? log_folders_.root() : "",
      .cgroup = guards_.cgroup,
      .kills_leftovers = plan_.leftovers.mode == LeftoverPlan::Mode::kKill,
      .held_fd = node_socket};
  // A keeper that runs already can't hold the socket that other tasks of a Slurm step wait for.
  if (plan_.warm.asks_daemon && plan_.runs_python && WhyCold(plan_).empty() && node_socket < 0) {
    daemon_ = VisitDaemon(plan_, environment, options);
    plan_.warm.on |= daemon_.is_there;
    plan_.warm.unasked &= !daemon_.is_there;
    if (daemon_.tells) {
      Notify(absl::StrCat("workers start without the interpreter of ddprun daemon: ", daemon_.why));
    }
  }
  if (daemon_.keeper.has_value()) {
    keeper_process_ = std::move(daemon_.keeper);
    daemon_.keeper.reset();
    return absl::OkStatus();
  }
  DDPRUN_ASSIGN_OR_RETURN(keeper_process_, ForkKeeper(options));
  return absl::OkStatus();
}

// Descriptors that no child of ours may hold open.
std::vector<int> Agent::FdsOfThisProcess() const {
  std::vector<int> fds = {keeper_process_->channel.get(), master_.socket()};
  if (keeper_process_->warden.valid()) fds.push_back(keeper_process_->warden.get());
  if (daemon_.connection.valid()) fds.push_back(daemon_.connection.get());
  return fds;
}

absl::Status Agent::StartWorkerParts(const std::string& hostname) {
  workers_ = std::make_unique<WorkerLauncher>(loop_.get(), &plan_, &log_folders_, hostname,
                                              runtime_dir_->File(kAgentSocket));
  leftovers_ = std::make_unique<LeftoverNotices>(
      loop_.get(), plan_.leftovers,
      [this](const std::string& event, const nlohmann::json& fields) { Write(event, fields); });
  gpus_ = std::make_unique<GpuRelease>(loop_.get(), plan_.gpu_memory_wait);
  gpu_watch_ = std::make_unique<GpuWatch>();
  keeper_ = KeeperClient::Create(loop_.get(), *std::move(keeper_process_), KeeperCallbacks());
  StartMarks();
  DDPRUN_RETURN_IF_ERROR(StartWarm());
  workers_->set_prepare([this](SpawnRequest* request) { PrepareWorker(request); });
  DDPRUN_RETURN_IF_ERROR(StartSideChannels(hostname));
  StartHangMonitor();
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

KeeperClient::Callbacks Agent::KeeperCallbacks() {
  KeeperClient::Callbacks callbacks;
  callbacks.on_started = [this](uint64_t generation, uint32_t local_rank, pid_t pid, bool parked) {
    if (!kept_.contains(local_rank)) WriteStart(generation, local_rank, pid, parked);
    gpus_->OnStarted(pid);
    side_channels_->OnStarted(local_rank, pid);
    hangs_->OnStarted(local_rank, pid);
    notices_->OnStarted(local_rank, pid);
    agent_server_->OnStarted(Generation(generation), local_rank);
    Feed(WorkerStarted{Generation(generation), local_rank, static_cast<uint32_t>(pid)});
  };
  callbacks.on_start_failed = [this](uint64_t generation, uint32_t local_rank,
                                     const absl::Status& error) {
    FeedEnd(Generation(generation), workers_->DescribeStartFailure(local_rank, error));
  };
  callbacks.on_exited = [this](uint64_t generation, WorkerEnd end, uint32_t swept) {
    Write("worker_exit", {{"generation", generation},
                          {"local_rank", end.local_rank},
                          {"worker_pid", end.pid},
                          {"exit_code", end.exit_code},
                          {"signal", end.signal},
                          {"swept", swept},
                          {"t_seen", static_cast<double>(end.seen.nanoseconds()) / 1e9}});
    // A worker that was to be kept has ended; the keeper reports a failed start next.
    if (Generation(generation) != supervisor_->generation()) return;
    kept_.erase(end.local_rank);
    notices_->OnEnded(end.local_rank, end.ok());
    if (!hangs_->OnEnded(end.local_rank, end.ok())) return;  // reported when it was found to hang
    workers_->AddWhy(&end);
    if (warm_ != nullptr) warm_->OnExited(generation, end);
    FeedEnd(Generation(generation), std::move(end));
  };
  callbacks.on_stopped = [this](uint64_t generation, uint32_t local_rank, pid_t pid, int number) {
    Feed(WorkerSuspended{Generation(generation), local_rank, static_cast<uint32_t>(pid), number});
  };
  callbacks.on_empty = [this](uint64_t generation, uint32_t swept) {
    OnGroupEmpty(generation, swept);
  };
  callbacks.on_left = [this](const std::vector<LeftProcess>& named, uint32_t count) {
    leftovers_->OnLeft(named, count);
  };
  callbacks.on_leftover_killed = [this](const LeftProcess& process, absl::Duration after,
                                        const std::string& why) {
    leftovers_->OnKilled(process, after, why);
  };
  callbacks.on_leftovers_gone = [this] { OnLeftoversGone(); };
  callbacks.on_parked_said = [this](const std::string& text) {
    if (warm_ != nullptr) warm_->OnSaid(text);
  };
  callbacks.on_parked_ended = [this](const std::string& how) {
    if (warm_ != nullptr) warm_->OnEnded(how);
  };
  callbacks.is_own_child = [this](pid_t pid) { return service_.IsChild(pid); };
  callbacks.on_keeper_lost = [this](const absl::Status& why) {
    OnLeftoversGone();
    Feed(KeeperLost{std::string(why.message())});
  };
  return callbacks;
}

void Agent::Do(const SpawnGroup& effect) {
  kept_ = {effect.kept.begin(), effect.kept.end()};
  const rendezvous::Assignment assignment = SeenFrom(plan_, effect.assignment);
  if (leftovers_->count() > 0) keeper_->LimitLeftovers(LeftoverPlan::kTimeAfterFailure);
  side_channels_->OnAssignment(assignment);
  hangs_->Begin(assignment, kept_);
  notices_->Begin(assignment);
  stop_steps_->Begin();
  starting_ = assignment;
  agent_server_->BeginGeneration(assignment, kept_);
  const absl::Status status =
      master_.Begin(loop_.get(), assignment, [this] { StartWorkers(absl::OkStatus()); });
  if (!status.ok()) StartWorkers(status);
}

// Starts the workers of the generation that waits for its store, if there is one. `status`: why
// they can't start.
void Agent::StartWorkers(absl::Status status) {
  const auto assignment = std::exchange(starting_, std::nullopt);
  if (!assignment.has_value()) return;
  Write("spawn", {{"generation", assignment->generation.value()}});
  if (status.ok()) status = workers_->Start(keeper_.get(), *assignment, kept_);
  if (status.ok()) return;
  // Only the worker that couldn't be spawned counts as failed. Workers that were spawned before it
  // are swept, as after any failure.
  const uint32_t failed = workers_->unstarted();
  FeedEnd(assignment->generation, workers_->DescribeStartFailure(failed, status));
  for (uint32_t local_rank = 0; local_rank < plan_.worker_count; ++local_rank) {
    if (local_rank == failed) continue;
    FeedEnd(assignment->generation, {{.local_rank = local_rank}, loop_->Now()});
  }
}

void Agent::Do(const SignalGroup& effect) {
  StartWorkers(absl::OkStatus());  // the keeper must have them before it gets the signal
  if (effect.stops) {
    hangs_->CloseBook();
    notices_->Stop();
    agent_server_->EndTurn(effect.generation, effect.why,
                           {effect.spared.begin(), effect.spared.end()});
  }
  keeper_->Signal(effect.generation.value(), effect.signal, effect.spared);
}

void Agent::Do(const SweepGroup& effect) {
  StartWorkers(absl::OkStatus());
  hangs_->CloseBook();
  notices_->Stop();
  kept_ = {effect.spared.begin(), effect.spared.end()};
  agent_server_->EndTurn(effect.generation, effect.why, kept_);
  keeper_->Sweep(effect.generation.value(), leftovers_->OptionsOf(effect));
}

// The service's message about workers without progress: they hang, or only the others have ended.
void Agent::Do(const HandleHungWorkers& effect) {
  if (!absl::StartsWith(effect.evidence, rendezvous::kEndedEvidence)) return hangs_->Do(effect);
  if (effect.generation == supervisor_->generation()) {
    notices_->OnOthersEnded(effect.evidence.substr(std::size(rendezvous::kEndedEvidence) - 1));
  }
}

WorkerNotices::Hooks Agent::NoticeHooks() {
  WorkerNotices::Hooks hooks;
  hooks.where = [this](uint32_t local_rank) {
    std::string waits;
    return hangs_->runs(local_rank) ? hangs_->WhereText(local_rank, &waits) : "";
  };
  hooks.record = [this](const std::string& event, auto fields) {
    Do(Record{event, std::move(fields)});
  };
  return hooks;
}

void Agent::WriteStart(uint64_t generation, uint32_t local_rank, pid_t pid, bool parked) {
  nlohmann::json fields = {
      {"generation", generation}, {"local_rank", local_rank}, {"worker_pid", pid}};
  if (local_rank < plan_.worker_cpus.size()) {
    fields["cpus"] = CpuSetText(plan_.worker_cpus[local_rank]);
  }
  if (warm_ != nullptr) {
    warm_->OnStarted(generation, local_rank, pid, parked);
    if (warm_->shows()) fields["warm"] = parked;
  }
  Write("worker_started", fields);
  if (const std::string note = std::exchange(plan_.note_at_start, ""); !note.empty()) Notify(note);
}

void Agent::FeedEnd(Generation generation, WorkerEnd end) {
  if (!end.ok()) hangs_->CloseBook();
  side_channels_->OnEnded(&end);
  Feed(WorkerEnded{generation, std::move(end)});
}

void Agent::OnGroupEmpty(uint64_t generation, uint32_t swept) {
  if (swept > 0) Write("swept", {{"generation", generation}, {"processes", swept}});
  if (warm_ != nullptr) warm_->OnEmpty();
  const uint64_t stopped_at = stop_steps_->StoppedAt();
  side_channels_->OnEmpty(kept_);
  const HangMonitor::Summary summary = hangs_->OnEmpty();
  gpus_->Await(side_channels_->PidsOf(kept_),
               [this, generation, summary, stopped_at](const GpuRelease::Result& result) {
                 OnGpusReleased(result);
                 // The next assignment, if it is here already, has the port that this node held.
                 if (!supervisor_->has_next_assignment()) master_.RenewPort();
                 Feed(GroupEmpty{Generation(generation), master_.port(), summary.step, stopped_at,
                                 summary.time});
               });
}

void Agent::OnLeftoversGone() {
  leftovers_->OnGone();
  if (end_->exit().has_value()) end_->Continue();
}

void Agent::OnGpusReleased(const GpuRelease::Result& result) {
  if (result.waited == absl::ZeroDuration() && result.error.empty()) return;
  const std::string holders = absl::StrJoin(result.holders, ",");
  Write("gpu_memory_wait", {{"waited_ms", absl::ToInt64Milliseconds(result.waited)},
                            {"holders", holders},
                            {"error", result.error}});
  if (!holders.empty()) {
    Notify(absl::StrCat("warning: the GPU driver still counts memory of ended workers (pid ",
                        holders, ") after ", absl::FormatDuration(result.waited),
                        "; going on without (--gpu_memory_wait)"));
  }
}

}  // namespace ddprun::launcher
