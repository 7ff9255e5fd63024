#include "launcher/core/supervisor/supervisor.h"

#include <algorithm>
#include <csignal>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/text.h"

// The stream to the service and the life of the worker group. supervisor_ending.cc has how a node
// leaves and an agent ends.
namespace ddprun::launcher {

using rendezvous::GroupState;

Supervisor::Supervisor(const SupervisorConfig& config, Instant now)
    : signals_(config.signals),
      restart_stopped_(config.restart_stopped),
      endpoint_(config.endpoint.text),
      real_now_(now),
      now_(now),
      clock_(now),
      stream_(config.identity, config.job),
      watch_(config.service, config.job, config.endpoint.text, now),
      hints_(config.endpoint, config.job.nodes_max > 1),
      barrier_(config.exit_barrier),
      departure_(config.preemption, config.signals, now),
      ending_(config.ending, now) {}

std::vector<SupervisorEffect> Supervisor::Step(Instant now, const SupervisorEvent& event) {
  DDPRUN_CHECK(now >= real_now_, "time went back");
  now_ = clock_.Read(now, NextDeadline());
  real_now_ = now;
  effects_.clear();
  if (const absl::Duration stall = clock_.TakeStall(); stall > absl::ZeroDuration()) {
    RecordFact("held_up", {{"ms", absl::StrCat(absl::ToInt64Milliseconds(stall))}});
  }
  if (phase_ != Phase::kEnded) {
    std::visit([this](const auto& e) { On(e); }, event);
    const auto back = phase_ == Phase::kEnded ? std::nullopt : watch_.TakeReturn(now_);
    if (back.has_value()) {
      Notify(NotifyUser::Level::kWarning, *back);
    }
    watch_.OnWorkers(now_, WorkersGoOn());
  }
  return std::move(effects_);
}

// ------------------------------------------------------------- the stream

void Supervisor::On(const EndpointFound& event) {
  stream_.OnEndpoint(event);
  hints_.OnEndpoint(event);
  ending_.SetServiceRunning(event.hosts_service);
}

void Supervisor::On(const StreamOpened& /*event*/) {
  GroupState state = GroupState::kStopping;
  if (group_.phase() == WorkerGroup::Phase::kRunning) state = GroupState::kRunning;
  if (group_.phase() == WorkerGroup::Phase::kIdle) {
    state = last_.succeeded() ? GroupState::kSucceeded : GroupState::kIdle;
  }
  effects_.push_back(SendMessage{stream_.Open(real_now_, state, group_.generation())});
}

void Supervisor::On(const ServiceMessageReceived& event) {
  watch_.OnHeard(now_);
  std::visit([this](const auto& message) { OnMessage(message); }, event.message);
}

void Supervisor::On(const HeartbeatHeard& /*event*/) { watch_.OnHeard(now_); }

void Supervisor::OnMessage(const rendezvous::Welcome& welcome) {
  if (stream_.has_joined()) RecordFact("reconnected", {});
  watch_.OnWelcome();
  if (phase_ == Phase::kJoining) phase_ = Phase::kStandby;
  for (rendezvous::AgentMessage& message : stream_.OnWelcome(real_now_, welcome)) {
    effects_.push_back(SendMessage{std::move(message)});
  }
  if (phase_ == Phase::kEnding) ContinueEnding();
}

void Supervisor::OnMessage(const rendezvous::Probe& probe) {
  watch_.OnProbe(probe.lease);
  rendezvous::AgentMessage answer = stream_.OnProbe(probe);
  std::get<rendezvous::Renewal>(answer.body).can_rejoin = group_.AllCanRejoin() && MayRejoin();
  effects_.emplace_back(SendMessage{std::move(answer)});
}

void Supervisor::OnMessage(const rendezvous::Standby& standby) {
  if (!standby_.OnStandby(now_, standby.reason, standby.spare)) return;
  hints_.OnStandby(now_, standby);
  RecordFact("standby", {{"reason", standby.reason}, {"spare", standby.spare ? "true" : "false"}});
}

void Supervisor::On(const ServiceStreamClosed& event) {
  stream_.Close();
  if (phase_ == Phase::kEnding) return ContinueEnding();
  const std::string error(event.status.message());
  if (!event.will_retry) {
    return LoseService(event.status.ok() ? "the rendezvous service ended the connection" : error);
  }
  if (watch_.OnClosed(now_, error, absl::IsNotFound(event.status))) {
    RecordFact("service_lost", {{"why", error}});
  }
}

void Supervisor::On(const ServiceExited& event) {
  ending_.SetServiceRunning(false);
  RecordFact("service_exited", {{"how", event.how}});
  if (phase_ == Phase::kEnding) return ContinueEnding();
  LoseService(absl::StrCat("the rendezvous service, a child of this agent, ", event.how,
                           "; without it the job can't restart, so it ends here"));
}

// ------------------------------------------------------------- a generation

void Supervisor::OnMessage(const rendezvous::Assignment& assignment) {
  if (phase_ == Phase::kEnding || assignment.generation <= group_.generation()) return;
  RecordFact("assignment", AssignmentFields(assignment));
  if (group_.phase() == WorkerGroup::Phase::kIdle) {
    return departure_.is_going() ? LeaveOnSignal(departure_.signal()) : Take(assignment);
  }
  // The StopWorkers was lost with a stream; a newer generation implies it.
  next_assignment_ = assignment;
  StopGroup(SIGTERM, assignment.reason);
}

void Supervisor::Spawn(const rendezvous::Assignment& assignment) {
  const uint32_t worker_count = stream_.node().worker_count;
  next_assignment_.reset();
  standby_.OnAssigned();
  hints_.OnAssigned();
  barrier_.OnAssigned(assignment.group_rank);
  last_.OnAssigned();
  stop_.Reset();
  const std::vector<uint32_t> kept = group_.spared();
  const std::string kept_text = KeptText(assignment);
  group_.Begin(assignment.generation, assignment.base_rank, worker_count);
  world_size_ = assignment.world_size;
  const bool is_restart = assignment.generation.value() > 1;
  Notify(is_restart ? NotifyUser::Level::kWarning : NotifyUser::Level::kInfo,
         AssignmentText(assignment, worker_count, stream_.job().max_restarts) + kept_text);
  effects_.push_back(SpawnGroup{assignment, kept});
}

bool Supervisor::Runs(rendezvous::Generation generation) const {
  return generation == group_.generation() && group_.phase() == WorkerGroup::Phase::kRunning;
}

// Whether workers can go on without the service: ours, or if this node is a spare, those of others.
bool Supervisor::WorkersGoOn() const {
  switch (group_.phase()) {
    case WorkerGroup::Phase::kRunning:
      return group_.failures().empty();
    case WorkerGroup::Phase::kIdle:
      return last_.succeeded() || standby_.is_spare();
    case WorkerGroup::Phase::kStopping:
      return false;
    case WorkerGroup::Phase::kSweeping:
      return group_.succeeded();
  }
  return false;
}

void Supervisor::On(const WorkerStarted& event) {
  if (event.generation != group_.generation()) return;
  if (group_.is_kept(event.local_rank)) {
    RecordFact("worker_kept", {{"generation", absl::StrCat(event.generation.value())},
                               {"local_rank", absl::StrCat(event.local_rank)},
                               {"worker_pid", absl::StrCat(event.pid)}});
  }
  if (group_.OnStarted(event.local_rank, event.pid)) {
    Send(event.generation, rendezvous::WorkersStarted{});
  }
}

void Supervisor::On(const WorkerEnded& event) {
  if (event.generation != group_.generation()) return;
  if (group_.phase() == WorkerGroup::Phase::kIdle) return OnKeptEnded(event.end);
  const size_t failures_before = group_.failures().size();
  const GroupAction action = group_.OnEnded(now_, event.end);
  if (group_.failures().size() > failures_before) {
    const std::string text = WorkerEndText(event.end, group_.base_rank());
    Notify(NotifyUser::Level::kWarning, text);
    if (failures_before == 0 && phase_ != Phase::kEnding) {
      Send(event.generation, rendezvous::WorkerFailed{group_.Describe(event.end, stream_.node_id(),
                                                                      stream_.node().hostname)});
    }
    if (action == GroupAction::kNone) {
      if (stop_.committed() && Runs(event.generation) && !event.end.hung) {
        stop_.Hasten(now_);
      } else {
        event.end.hung ? KillGroup(text) : StopGroup(SIGTERM, text);
      }
    }
  }
  Apply(action, "all workers of this node ended");
  StopWhenSettled();
}

void Supervisor::On(const WorkerSuspended& event) {
  if (event.generation != group_.generation()) return;
  RecordFact("worker_suspended", {{"local_rank", absl::StrCat(event.local_rank)},
                                  {"signal", absl::StrCat(event.signal)}});
  const bool ends = restart_stopped_ && Runs(event.generation);
  Notify(NotifyUser::Level::kWarning, SuspendedText(event, group_.base_rank(), ends));
  if (!ends) return;
  effects_.push_back(HandleHungWorkers{
      event.generation, {event.local_rank}, absl::StrCat("stopped by ", SignalName(event.signal))});
}

// A report that can't be sent isn't kept: if a worker is still suspect later, a new report says so.
void Supervisor::On(const ProgressFound& event) {
  if (!Runs(event.generation)) return;
  group_.SetAnySuspect(event.report.any_suspect());
  if (stream_.is_welcomed() && phase_ != Phase::kEnding) Send(event.generation, event.report);
}

void Supervisor::OnMessage(const rendezvous::ReportProgress& request) {
  if (!Runs(request.generation)) return;
  effects_.push_back(LookAtWorkers{request.generation, request.sample});
}

void Supervisor::OnMessage(const rendezvous::HungWorkers& order) {
  if (!Runs(order.generation)) return;
  effects_.push_back(
      HandleHungWorkers{order.generation, order.local_ranks, order.reason, order.end});
}

void Supervisor::On(const GroupEmpty& event) {
  const bool is_awaited = group_.phase() == WorkerGroup::Phase::kSweeping;
  if (event.generation != group_.generation() || !is_awaited) return;
  group_.OnEmpty();
  last_.OnEmpty(event);
  stream_.ReserveMasterPort(event.master_port);
  const std::string generation = absl::StrCat(event.generation.value());
  RecordFact("group_empty", {{"generation", generation}});
  if (phase_ == Phase::kEnding) return ContinueEnding();
  if (event.stopped_at != 0) {
    RecordFact("stopped_at_step",
               {{"generation", generation}, {"step", absl::StrCat(event.stopped_at)}});
  }
  // Workers that stop at a stop step end with 0, too, but they aren't done.
  if (group_.succeeded() && event.stopped_at == 0) {
    last_.Succeed(event.generation);
    Send(event.generation, rendezvous::GroupSucceeded{last_.time()});
    return barrier_.Begin(now_, stream_.node().hosts_service);
  }
  // Workers of other nodes that still save may need the stores; the next generation ends them.
  if (event.stopped_at == 0) EndStores("the generation was stopped");
  if (LeavePreempted()) return;
  SendStopped(/*clean=*/true);
  if (next_assignment_.has_value()) Take(rendezvous::Assignment(*next_assignment_));
}

// ------------------------------------------------------------- stops

void Supervisor::OnMessage(const rendezvous::StopWorkers& stop) {
  if (phase_ == Phase::kEnding) return;
  if (group_.phase() != WorkerGroup::Phase::kIdle && stop.generation >= group_.generation()) {
    if (stop_.committed() && Runs(group_.generation())) return stop_.Hasten(now_);
    // If a worker hangs, the others wait for it and can't end well within a grace period.
    const int signal_number = departure_.is_going() ? departure_.signal() : SIGTERM;
    group_.any_suspect() ? KillGroup(stop.reason) : StopGroup(signal_number, stop.reason);
  } else if (last_.Withdraw(stop.generation)) {
    // All workers here ended well, so there is nothing to stop. A failure on another node restarts
    // them, too (R8).
    barrier_.Cancel();
    EndStores(stop.reason);
    if (!LeavePreempted()) SendStopped(/*clean=*/true);
  }
}

void Supervisor::OnMessage(const rendezvous::PrepareStop& prepare) {
  if (phase_ == Phase::kEnding || !Runs(prepare.generation)) return;
  if (group_.all_started()) return LookAtStop(prepare.round, prepare.step);
  Send(prepare.generation, rendezvous::StopPrepared{prepare.round, {}});  // nothing to save yet
}

void Supervisor::OnMessage(const rendezvous::CommitStop& commit) {
  if (phase_ == Phase::kEnding) return;
  if (!Runs(commit.generation)) {
    return OnMessage(rendezvous::StopWorkers{commit.generation, commit.reason});
  }
  if (stop_.committed()) return;
  stop_.Commit(now_, commit.within);
  departure_.OnAgreed();
  group_.Explain(commit.reason);
  RecordFact("stop_committed", {{"generation", absl::StrCat(commit.generation.value())},
                                {"step", absl::StrCat(commit.step)},
                                {"why", commit.reason}});
  Notify(NotifyUser::Level::kWarning,
         absl::StrCat(commit.reason, "; the workers save and end at step ", commit.step));
  effects_.push_back(CommitStopStep{commit.generation, commit.step});
}

void Supervisor::Explain(const std::string& why) {
  if (!Runs(group_.generation())) return;
  group_.Explain(why);
  RecordFact("stop_begin",
             {{"generation", absl::StrCat(group_.generation().value())}, {"why", why}});
}

void Supervisor::KillGroup(const std::string& why) {
  Explain(why);
  if (Runs(group_.generation()) && !MayRejoin()) group_.SpareNobody();
  if (group_.spared().empty()) return Apply(group_.KillNow(now_, real_now_), why);
  // Workers that can rejoin hang only because of another one, so they may still let go: also when
  // the stop has begun already, because of a worker that failed here.
  Apply(Runs(group_.generation()) ? group_.Stop(now_, real_now_, SIGKILL, LetGoBound())
                                  : group_.CutGrace(),
        why);
}

void Supervisor::StopGroup(int signal_number, const std::string& why) {
  Explain(why);
  if (Runs(group_.generation()) && !MayRejoin()) group_.SpareNobody();
  Apply(group_.Stop(now_, real_now_, signal_number, stream_.job().stop_grace), why);
}

void Supervisor::Apply(GroupAction action, const std::string& why) {
  switch (action) {
    case GroupAction::kNone:
      break;
    case GroupAction::kSignal:
      Signal(why);
      break;
    case GroupAction::kSweep:
      if (!MayRejoin()) group_.SpareNobody();
      NotifyLate();
      // If all workers here ended well, or saved at a stop step, workers of other nodes may still
      // use the stores here (R8).
      if (!group_.succeeded() && (!stop_.committed() || group_.spared().empty())) {
        EndStores(group_.why().empty() ? why : group_.why());
      }
      effects_.push_back(SweepGroup{group_.generation(), group_.spared(), why, SweepAfter()});
      break;
  }
}

// Workers that ended with 0 at a stop step aren't done: their node is taken away or restarts them.
SweepGroup::After Supervisor::SweepAfter() const {
  if (killed_by_signal_) return SweepGroup::After::kSecondSignal;
  const bool done = group_.succeeded() && !stop_.committed();
  return done ? SweepGroup::After::kSuccess : SweepGroup::After::kStop;
}

void Supervisor::EndStores(const std::string& why) {
  if (!last_.EndStores(group_.generation())) return;
  effects_.push_back(EndGeneration{group_.generation(), why});
}

void Supervisor::SendStopped(bool clean) {
  rendezvous::GroupStopped stopped;
  for (const WorkerEnd& end : group_.failures()) {
    stopped.failures.push_back(group_.Describe(end, stream_.node_id(), stream_.node().hostname));
  }
  stopped.clean = clean;
  stopped.master_port = stream_.node().master_port;
  stopped.step = last_.step();
  stopped.time = last_.time();
  stopped.left = group_.left();
  stopped.kept = static_cast<uint32_t>(group_.spared().size());
  Send(group_.generation(), std::move(stopped));
}

// ------------------------------------------------------------- time

void Supervisor::On(const TimerFired& /*event*/) {
  Apply(group_.OnTimer(now_, real_now_), "the grace is over");
  CheckPreemption();
  if (phase_ == Phase::kEnded) return;
  if (group_.unclean() && ending_.OnUnclean()) return EndUnclean();
  if (const auto text = standby_.OnTimer(now_)) Notify(NotifyUser::Level::kWarning, *text);
  if (const auto text = hints_.OnTimer(now_)) Notify(NotifyUser::Level::kWarning, *text);
  if (barrier_.OnTimer(now_)) return EndExitBarrier();
  if (phase_ != Phase::kEnding) return CheckService();
  if (ending_.OnTimer(now_)) return Finish();
  if (const auto left = ending_.TakeLateWait(now_)) {
    Notify(NotifyUser::Level::kWarning, LateAgentsText(*left));
  }
}

Instant Supervisor::NextDeadline() const {
  if (phase_ == Phase::kEnded) return Instant::Infinite();
  return std::min(clock_.Wake(NextBound()), departure_.TimeIsOver());
}

// In the time of clock_.
Instant Supervisor::NextBound() const {
  Instant next = std::min({group_.Deadline(), departure_.Deadline(), standby_.Deadline()});
  if (group_.phase() == WorkerGroup::Phase::kRunning) next = std::min(next, stop_.Deadline());
  if (phase_ == Phase::kEnding) return std::min(next, ending_.Deadline());
  return std::min({next, watch_.Deadline(), hints_.Deadline(), barrier_.Deadline()});
}

// ------------------------------------------------------------- effects

void Supervisor::Send(rendezvous::Generation generation,
                      decltype(rendezvous::AgentMessage::body) body) {
  std::optional<rendezvous::AgentMessage> message = stream_.Add(generation, std::move(body));
  if (message.has_value()) effects_.push_back(SendMessage{*std::move(message)});
}

void Supervisor::LookAtStop(uint32_t round, uint64_t step) {
  effects_.push_back(LookAtStopStep{group_.generation(), round, step});
}

void Supervisor::Notify(NotifyUser::Level level, std::string text) {
  effects_.push_back(NotifyUser{level, std::move(text)});
}

void Supervisor::RecordFact(std::string event, RecordFields fields) {
  effects_.push_back(Record{std::move(event), std::move(fields)});
}

// ------------------------------------------------------------- for people and tests

const char* Supervisor::StateName() const {
  if (phase_ == Phase::kEnding || phase_ == Phase::kEnded) return "ending";
  switch (group_.phase()) {
    case WorkerGroup::Phase::kRunning:
      return "running";
    case WorkerGroup::Phase::kStopping:
    case WorkerGroup::Phase::kSweeping:
      return "stopping";
    case WorkerGroup::Phase::kIdle:
      break;
  }
  return phase_ == Phase::kJoining ? "joining" : "waiting";
}

std::string Supervisor::DebugString() const {
  static constexpr const char* kPhases[] = {"joining", "standby", "ending", "ended"};
  static constexpr const char* kGroups[] = {"idle", "running", "stopping", "sweeping"};
  return absl::StrCat(stream_.node_id().value(), ": ", kPhases[static_cast<int>(phase_)],
                      ", group ", kGroups[static_cast<int>(group_.phase())], " of generation ",
                      group_.generation().value(),
                      stream_.is_open() ? ", stream up" : ", no stream");
}

std::string Supervisor::BrokenInvariant() const {
  for (const std::string& broken :
       {stream_.BrokenInvariant(), watch_.BrokenInvariant(), hints_.BrokenInvariant(),
        group_.BrokenInvariant(), stop_.BrokenInvariant(), departure_.BrokenInvariant(),
        ending_.BrokenInvariant()}) {
    if (!broken.empty()) return broken;
  }
  const bool is_idle = group_.phase() == WorkerGroup::Phase::kIdle;
  const bool ends = phase_ == Phase::kEnding || phase_ == Phase::kEnded;
  if (!ends && (phase_ == Phase::kJoining) == stream_.has_joined()) return "it joins twice";
  if (!ends && ending_.is_leaving()) return "a node that leaves doesn't end";
  if (!ends && watch_.is_joining() != !stream_.has_joined()) return "watch and stream differ";
  if (!is_idle && last_.succeeded()) return "a generation that succeeded has workers";
  if (!ends && is_idle && next_assignment_.has_value()) return "an assignment waits for nobody";
  if (!barrier_.Deadline().is_infinite() && (ends || !last_.succeeded())) {
    return "a node that ends, or isn't done, waits for the others to be";
  }
  return "";
}

}  // namespace ddprun::launcher
