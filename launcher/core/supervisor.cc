#include "launcher/core/supervisor.h"

#include <algorithm>
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/check.h"
#include "base/signal_name.h"

// The dialogue with the service and the life of the group. supervisor_stopping.cc has how workers
// are stopped, supervisor_ending.cc how an agent ends.
namespace ddprun::launcher {
namespace {

using rendezvous::GroupState;
using Phase = WorkerGroup::Phase;

// A user who waits is told so after this long.
constexpr absl::Duration kTellAfter = absl::Seconds(1);

// "restart 2 of 3 (worker rank 0 on host1 exited with code 1; rule worker_failure)".
std::string RestartText(const rendezvous::Assignment& assignment, uint32_t max_restarts) {
  std::string text = absl::StrCat("restart ", assignment.restart_count);
  if (assignment.restarts_charged == assignment.restart_count) {
    absl::StrAppend(&text, " of ", max_restarts);
  } else {
    absl::StrAppend(&text, ", ", assignment.restarts_charged, " of ", max_restarts,
                    " since the last progress");
  }
  const std::string rule = assignment.rule.empty() ? "" : absl::StrCat("rule ", assignment.rule);
  const absl::string_view between = assignment.reason.empty() || rule.empty() ? "" : "; ";
  if (assignment.reason.empty() && rule.empty()) return text;
  return absl::StrCat(text, " (", assignment.reason, between, rule, ")");
}

}  // namespace

Supervisor::Supervisor(SupervisorConfig config, Instant now)
    : config_(std::move(config)),
      now_(now),
      last_contact_(now),
      began_(now),
      tell_joining_(now + kTellAfter),
      preempt_at_(now + (config_.preempt_after - config_.preempt_deadline)) {}

std::vector<SupervisorEffect> Supervisor::Step(Instant now, const SupervisorEvent& event) {
  DDPRUN_CHECK(now >= now_, "time went back");
  now_ = now;
  effects_.clear();
  if (phase_ != Phase::kEnded) {
    std::visit([this](const auto& e) { On(e); }, event);
  }
  return std::move(effects_);
}

// ------------------------------------------------------------- the stream

void Supervisor::On(const EndpointFound& event) {
  config_.node.address = event.node_address;
  config_.node.store_address = event.store_address;
  config_.node.hosts_endpoint = event.hosts_endpoint;
  config_.node.hosts_service = event.hosts_service;
  hosts_service_ = event.hosts_service;
  service_running_ = event.hosts_service;
  endpoint_is_loopback_ = event.is_loopback && config_.job.nodes_max > 1;
}

void Supervisor::On(const StreamOpened& /*event*/) {
  stream_up_ = true;
  stream_ = stream_.Next();
  SendJoin();
}

void Supervisor::SendJoin() {
  rendezvous::Join join;
  join.protocol_major = config_.protocol_major;
  join.release = config_.release;
  join.token = config_.token;
  join.job = config_.job;
  join.node = config_.node;
  rendezvous::AgentMessage message = Header();
  switch (group_.phase()) {
    case WorkerGroup::Phase::kRunning:
      join.group_state = GroupState::kRunning;
      break;
    case WorkerGroup::Phase::kStopping:
    case WorkerGroup::Phase::kSweeping:
      join.group_state = GroupState::kStopping;
      break;
    case WorkerGroup::Phase::kIdle:
      join.group_state = succeeded_generation_ == rendezvous::Generation() ? GroupState::kIdle
                                                                           : GroupState::kSucceeded;
      break;
  }
  if (join.group_state != GroupState::kIdle) message.generation = group_.generation();
  message.body = std::move(join);
  effects_.push_back(SendMessage{std::move(message)});
}

rendezvous::AgentMessage Supervisor::Header() const {
  rendezvous::AgentMessage message;
  message.run_id = config_.job.run_id;
  message.term = term_;
  message.node_id = config_.node_id;
  message.incarnation = config_.incarnation;
  message.stream = stream_;
  return message;
}

void Supervisor::SendEvent(rendezvous::Generation generation,
                           decltype(rendezvous::AgentMessage::body) body) {
  rendezvous::AgentMessage message = Header();
  message.generation = generation;
  message.body = std::move(body);
  const rendezvous::AgentMessage& kept = outbox_.Add(std::move(message));
  if (welcomed_) effects_.push_back(SendMessage{kept});
}

void Supervisor::On(const ServiceMessageReceived& event) {
  last_contact_ = now_;
  std::visit([this](const auto& message) { OnMessage(message); }, event.message);
}

void Supervisor::On(const HeartbeatHeard& /*event*/) { last_contact_ = now_; }

void Supervisor::OnMessage(const rendezvous::Welcome& welcome) {
  const bool back = term_ != rendezvous::Term();
  term_ = welcome.term;
  welcomed_ = true;
  lost_since_ = Instant::Infinite();
  tell_joining_ = Instant::Infinite();
  last_error_.clear();
  if (phase_ == Phase::kJoining) phase_ = Phase::kStandby;
  if (back) RecordFact("reconnected", {});
  outbox_.Confirm(welcome.processed_sequence);
  for (rendezvous::AgentMessage message : outbox_.pending()) {
    message.term = term_;
    message.stream = stream_;
    effects_.push_back(SendMessage{std::move(message)});
  }
  if (phase_ == Phase::kEnding) ContinueEnding();
}

void Supervisor::OnMessage(const rendezvous::Probe& probe) {
  outbox_.Confirm(probe.processed_sequence);
  rendezvous::AgentMessage message = Header();
  message.body = rendezvous::Renewal{probe.nonce};
  effects_.push_back(SendMessage{std::move(message)});
}

void Supervisor::OnMessage(const rendezvous::Standby& standby) {
  if (standby.reason == standby_text_) return;
  standby_text_ = standby.reason;
  tell_standby_ = now_ + kTellAfter;
  WatchLoneliness(standby);
  RecordFact("standby", {{"reason", standby.reason}, {"spare", standby.spare ? "true" : "false"}});
}

void Supervisor::On(const ServiceStreamClosed& event) {
  stream_up_ = false;
  welcomed_ = false;
  if (phase_ == Phase::kEnding) return ContinueEnding();
  last_error_ = std::string(event.status.message());
  if (!event.will_retry) {
    LoseService(event.status.ok() ? "the rendezvous service ended the connection" : last_error_);
    return;
  }
  if (term_ != rendezvous::Term() && lost_since_.is_infinite()) {
    lost_since_ = now_;
    tell_joining_ = now_ + kTellAfter;
    RecordFact("service_lost", {{"why", last_error_}});
  }
}

void Supervisor::On(const ServiceExited& event) {
  service_running_ = false;
  RecordFact("service_exited", {{"how", event.how}});
  if (phase_ == Phase::kEnding) return ContinueEnding();
  LoseService(absl::StrCat("the rendezvous service, a child of this agent, ", event.how,
                           "; without it the job can't restart, so it ends here"));
}

// ------------------------------------------------------------- the group

void Supervisor::OnMessage(const rendezvous::Assignment& assignment) {
  if (phase_ == Phase::kEnding || assignment.generation <= group_.generation()) return;
  RecordFact("assignment",
             {{"generation", absl::StrCat(assignment.generation.value())},
              {"world", absl::StrCat(assignment.world_size)},
              {"rank", absl::StrCat(assignment.base_rank)},
              {"group_rank", absl::StrCat(assignment.group_rank)},
              {"restart_count", absl::StrCat(assignment.restart_count)},
              {"rule", assignment.rule},
              {"master", absl::StrCat(assignment.master_addr, ":", assignment.master_port)}});
  if (group_.phase() == WorkerGroup::Phase::kIdle) {
    return preempt_signal_ == 0 ? Spawn(assignment) : LeaveOnSignal(preempt_signal_);
  }
  // A stop that was lost with a stream: the newer generation says the same.
  next_assignment_ = assignment;
  StopGroup(SIGTERM, assignment.reason);
}

void Supervisor::Spawn(const rendezvous::Assignment& assignment) {
  standby_text_.clear();
  tell_standby_ = Instant::Infinite();
  tell_loopback_ = Instant::Infinite();
  barrier_end_ = Instant::Infinite();
  group_rank_ = assignment.group_rank;
  next_assignment_.reset();
  succeeded_generation_ = rendezvous::Generation();
  ever_spawned_ = true;
  any_suspect_ = false;
  stop_committed_ = false;
  stop_reach_end_ = Instant::Infinite();
  stop_save_end_ = Instant::Infinite();
  group_.Begin(assignment.generation, assignment.base_rank, config_.node.worker_count);
  const uint32_t last = assignment.base_rank + config_.node.worker_count - 1;
  Tell(assignment.generation.value() > 1 ? TellUser::Level::kWarning : TellUser::Level::kInfo,
       absl::StrCat("generation ", assignment.generation.value(), ": ", assignment.world_size,
                    " workers on ", assignment.group_world_size, " nodes, ranks ",
                    assignment.base_rank, "-", last, " here, ",
                    RestartText(assignment, config_.job.max_restarts)));
  effects_.push_back(SpawnGroup{assignment});
}

void Supervisor::On(const WorkerStarted& event) {
  if (event.generation != group_.generation()) return;
  if (group_.OnStarted(event.local_rank, event.pid)) {
    SendEvent(event.generation, rendezvous::WorkersStarted{});
  }
}

void Supervisor::On(const WorkerEnded& event) {
  if (event.generation != group_.generation()) return;
  const size_t failures_before = group_.failures().size();
  const GroupAction action = group_.OnEnded(event.end);
  const bool failed = group_.failures().size() > failures_before;
  if (failed) {
    const std::string text =
        absl::StrCat("worker rank ", group_.base_rank() + event.end.local_rank, " (local rank ",
                     event.end.local_rank, ", pid ", event.end.pid, ") ", DescribeEnd(event.end));
    Tell(TellUser::Level::kWarning, text);
    if (failures_before == 0 && phase_ != Phase::kEnding) {
      SendEvent(event.generation, rendezvous::WorkerFailed{Describe(event.end)});
    }
    if (action == GroupAction::kNone) {
      if (IsStoppingAtStep() && !event.end.hung) {
        HastenStop();
      } else {
        event.end.hung ? KillGroup(text) : StopGroup(SIGTERM, text);
      }
    }
  }
  Apply(action, "all workers of this node ended");
}

void Supervisor::On(const WorkerSuspended& event) {
  if (event.generation != group_.generation()) return;
  RecordFact("worker_suspended", {{"local_rank", absl::StrCat(event.local_rank)},
                                  {"signal", absl::StrCat(event.signal)}});
  const bool ends = config_.restart_stopped && group_.phase() == WorkerGroup::Phase::kRunning;
  const std::string how = absl::StrCat("stopped by ", SignalName(event.signal));
  Tell(TellUser::Level::kWarning,
       absl::StrCat("worker rank ", group_.base_rank() + event.local_rank, " (pid ", event.pid,
                    ") was ", how,
                    ends ? "; it is killed (--on_stopped restart)"
                    : event.watched
                        ? "; the job waits for it, and restarts unless it goes on soon (kill -CONT "
                        : "; the job stands still until it goes on (kill -CONT ",
                    ends ? "" : absl::StrCat(event.pid, ")")));
  if (!ends) return;
  effects_.push_back(EndHungWorkers{event.generation, {event.local_rank}, how});
}

// A report that can't be sent is worth nothing later: who is still suspect then is told anew.
void Supervisor::On(const ProgressFound& event) {
  if (event.generation != group_.generation() || group_.phase() != WorkerGroup::Phase::kRunning)
    return;
  any_suspect_ = event.report.any_suspect();
  if (welcomed_ && phase_ != Phase::kEnding) SendEvent(event.generation, event.report);
}

void Supervisor::OnMessage(const rendezvous::ReportProgress& request) {
  if (request.generation != group_.generation() || group_.phase() != WorkerGroup::Phase::kRunning)
    return;
  effects_.push_back(LookAtWorkers{request.generation, request.sample});
}

void Supervisor::OnMessage(const rendezvous::EndHung& order) {
  if (order.generation != group_.generation() || group_.phase() != WorkerGroup::Phase::kRunning)
    return;
  effects_.push_back(EndHungWorkers{order.generation, order.local_ranks, order.reason});
}

void Supervisor::Apply(GroupAction action, const std::string& why) {
  switch (action) {
    case GroupAction::kNone:
      break;
    case GroupAction::kSignal:
      effects_.push_back(SignalGroup{group_.generation(), group_.stop_signal()});
      break;
    case GroupAction::kSweep:
      // Where all ended well, other nodes' workers still use the stores that are here (R8).
      if (!group_.succeeded()) EndStores(stop_reason_.empty() ? why : stop_reason_);
      effects_.push_back(SweepGroup{group_.generation()});
      break;
  }
}

void Supervisor::EndStores(const std::string& why) {
  if (ended_generation_ == group_.generation()) return;
  ended_generation_ = group_.generation();
  effects_.push_back(EndGeneration{ended_generation_, why});
}

void Supervisor::On(const GroupEmpty& event) {
  if (event.generation != group_.generation() || group_.phase() != WorkerGroup::Phase::kSweeping) {
    return;
  }
  group_.OnEmpty();
  stop_reason_.clear();
  config_.node.master_port = event.master_port;
  reached_step_ = event.step;
  spent_time_ = event.time;
  RecordFact("group_empty", {{"generation", absl::StrCat(event.generation.value())}});
  if (phase_ == Phase::kEnding) return ContinueEnding();
  if (event.stopped_at != 0) {
    RecordFact("stopped_at_step", {{"generation", absl::StrCat(event.generation.value())},
                                   {"step", absl::StrCat(event.stopped_at)}});
  }
  // At a stop step workers end with 0 too, but they aren't done.
  if (group_.succeeded() && event.stopped_at == 0) {
    succeeded_generation_ = group_.generation();
    SendEvent(group_.generation(), rendezvous::GroupSucceeded{spent_time_});
    BeginExitBarrier();
    return;
  }
  // Where the others still save, they may need the stores; the next generation ends them.
  if (event.stopped_at == 0) EndStores("the generation was stopped");
  if (LeavePreempted()) return;
  SendStopped(/*clean=*/true);
  if (next_assignment_.has_value()) Spawn(rendezvous::Assignment(*next_assignment_));
}

void Supervisor::SendStopped(bool clean) {
  rendezvous::GroupStopped stopped;
  for (const WorkerEnd& end : group_.failures()) stopped.failures.push_back(Describe(end));
  stopped.clean = clean;
  stopped.master_port = config_.node.master_port;
  stopped.step = reached_step_;
  stopped.time = spent_time_;
  SendEvent(group_.generation(), std::move(stopped));
}

rendezvous::WorkerFailure Supervisor::Describe(const WorkerEnd& end) const {
  rendezvous::WorkerFailure failure;
  failure.rank = group_.base_rank() + end.local_rank;
  failure.local_rank = end.local_rank;
  failure.node_id = config_.node_id;
  failure.hostname = config_.node.hostname;
  failure.pid = end.pid;
  failure.exit_code = end.exit_code;
  failure.signal = end.signal;
  failure.core_dumped = end.core_dumped;
  failure.start_error = end.start_error;
  failure.message = end.message;
  failure.traceback = end.traceback;
  failure.error_file = end.error_file;
  failure.stderr_tail = end.stderr_tail;
  failure.facts = end.facts;
  failure.wall_time_ms = end.wall_time_ms;
  if (!group_.failures().empty() && end.seen > group_.failures().front().seen) {
    failure.after_first_ms =
        static_cast<uint64_t>(absl::ToInt64Milliseconds(end.seen - group_.failures().front().seen));
  }
  failure.generation = group_.generation();
  failure.hung = end.hung;
  failure.preflight = end.preflight;
  return failure;
}

// ------------------------------------------------------------- time

void Supervisor::On(const TimerFired& /*event*/) {
  Apply(group_.OnTimer(now_), "the grace is over");
  CheckStopStep();
  if (group_.unclean() && !finish_sent_ && !ended_unclean_) return EndUnclean();
  if (now_ >= tell_standby_) {
    tell_standby_ = Instant::Infinite();
    Tell(TellUser::Level::kWarning, standby_text_);
  }
  if (now_ >= tell_loopback_) {
    tell_loopback_ = Instant::Infinite();
    told_loopback_ = true;
    Tell(TellUser::Level::kWarning, absl::StrCat("no other node has come, and", LoopbackHint()));
  }
  if (now_ >= barrier_end_) return EndExitBarrier();
  CheckService();
  if (phase_ == Phase::kEnding && now_ >= finish_bound_) {
    finish_bound_ = Instant::Infinite();
    Finish();
  }
}

void Supervisor::CheckService() {
  if (phase_ == Phase::kEnding) return;
  if (welcomed_ && lost_since_.is_infinite() && now_ >= last_contact_ + config_.job.lease) {
    lost_since_ = last_contact_;
    tell_joining_ = now_;
    last_error_ = absl::StrCat("silent for ", absl::FormatDuration(config_.job.lease));
    RecordFact("service_lost", {{"why", last_error_}});
  } else if (welcomed_ && !lost_since_.is_infinite() && now_ < last_contact_ + config_.job.lease) {
    lost_since_ = Instant::Infinite();  // it speaks again
    tell_joining_ = Instant::Infinite();
  }
  const bool joining = phase_ == Phase::kJoining;
  const Instant bound =
      joining ? began_ + ReachTimeout() : lost_since_ + config_.service_loss_timeout;
  if (now_ >= bound) {
    return LoseService(absl::StrCat(
        "no answer within ",
        absl::FormatDuration(joining ? ReachTimeout() : config_.service_loss_timeout),
        !joining                                           ? " (--service_loss_timeout)"
        : config_.reach_timeout < config_.job.join_timeout ? " (--rdzv_conf read_timeout)"
                                                           : " (--rdzv_conf join_timeout)",
        last_error_.empty() ? "" : absl::StrCat("; last: ", last_error_)));
  }
  if (now_ >= tell_joining_) {
    tell_joining_ = Instant::Infinite();
    Tell(TellUser::Level::kWarning,
         absl::StrCat(
             joining ? "can't reach the rendezvous service at " : "lost the rendezvous service at ",
             config_.endpoint, last_error_.empty() ? " yet" : absl::StrCat(" (", last_error_, ")"),
             "; trying for ", absl::FormatDuration(absl::Ceil(bound - now_, absl::Seconds(1))),
             joining
                 ? absl::StrCat(" more. Is node rank 0 up, is the address right, is the port open?",
                                JoiningHint())
                 : " more; the workers go on"));
  }
}

absl::Duration Supervisor::ReachTimeout() const {
  return std::min(config_.reach_timeout, config_.job.join_timeout);
}

Instant Supervisor::NextDeadline() const {
  if (phase_ == Phase::kEnded) return Instant::Infinite();
  Instant next = std::min({group_.Deadline(), StopStepDeadline(), tell_standby_, finish_bound_});
  if (phase_ == Phase::kEnding) return next;
  next = std::min({next, tell_joining_, tell_loopback_, barrier_end_});
  if (phase_ == Phase::kJoining) return std::min(next, began_ + ReachTimeout());
  if (!lost_since_.is_infinite()) next = std::min(next, lost_since_ + config_.service_loss_timeout);
  if (welcomed_ && lost_since_.is_infinite()) {
    next = std::min(next, last_contact_ + config_.job.lease);
  }
  return next;
}

void Supervisor::Tell(TellUser::Level level, std::string text) {
  effects_.push_back(TellUser{level, std::move(text)});
}

void Supervisor::RecordFact(std::string event,
                            std::vector<std::pair<std::string, std::string>> fields) {
  effects_.push_back(Record{std::move(event), std::move(fields)});
}

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
  return absl::StrCat(config_.node_id.value(), ": ", kPhases[static_cast<int>(phase_)], ", group ",
                      kGroups[static_cast<int>(group_.phase())], " of generation ",
                      group_.generation().value(), stream_up_ ? ", stream up" : ", no stream");
}

}  // namespace ddprun::launcher
