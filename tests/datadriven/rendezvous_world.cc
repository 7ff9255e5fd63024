#include "tests/datadriven/rendezvous_world.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/version.h"
#include "tests/support/trace_text.h"

namespace ddprun::testing {

using namespace rendezvous;  // NOLINT(google-build-using-namespace): a test's own file

std::vector<std::string> RendezvousWorld::Run(const std::string& line) {
  output_.clear();
  if (line.front() == '#') return {};
  const Command command = ParseCommand(line);
  const std::string& verb = command.verb;
  if (verb == "job") {
    StartJob(command);
  } else if (verb == "join") {
    OpenStream(command);
  } else if (verb == "close" || verb == "reset") {
    const StreamKey stream = *std::exchange(Get(command.subject).stream, std::nullopt);
    Step(StreamClosed{stream, /*finished=*/verb == "close"});
    streams_.erase(stream);
  } else if (verb == "cut" || verb == "heal") {
    Cut(command);
  } else if (verb == "advance" || verb == "stall") {
    absl::Duration duration;
    DDPRUN_CHECK(absl::ParseDuration(command.subject, &duration), line);
    if (verb == "advance") {
      Advance(duration);
    } else {
      now_ = now_ + duration;
      Step(TimerDue{});
    }
  } else if (verb == "busy") {
    absl::Duration duration;
    DDPRUN_CHECK(absl::ParseDuration(command.subject, &duration), line);
    now_ = now_ + duration;
  } else if (verb == "stop") {
    Step(StopRequested{command.subject});
  } else if (verb == "drain" || verb == "undrain") {
    Step(DrainRequested{.node = Get(command.subject).id,
                        .reason = command.Text("reason", ""),
                        .undo = verb == "undrain"});
  } else if (verb == "gpus") {
    std::vector<GpuUse>& gpus = Get(command.subject).gpus;
    gpus.clear();
    for (uint32_t i = 0; i < command.Number("count", 1); ++i) {
      gpus.push_back({.index = i, .lost = command.Number("lost", UINT32_MAX) == i});
    }
  } else if (verb == "train") {
    Get(command.subject).progress = {PackProgress(ProgressPhase::kTrain, 1)};
    Get(command.subject).can_rejoin = command.Number("rejoins", 0) != 0;
  } else if (verb == "persisted") {
    const bool ok = command.subject == "ok";
    if (ok) TakeRecord();
    Step(PersistDone{ok ? absl::OkStatus() : absl::DataLossError("disk full")});
  } else if (verb == "restart") {
    RestartService(command);
  } else if (verb == "view") {
    for (absl::string_view text : absl::StrSplit(TraceText(machine_->View(now_)), '\n')) {
      output_.emplace_back(text);
    }
  } else if (verb == "ledger") {
    ShowLedger();
  } else if (verb == "deadline") {
    output_.push_back(ToString(machine_->NextDeadline()));
  } else if (verb == "probes") {
    show_probes_ = command.subject == "on";
  } else {
    Report(command);
  }
  DDPRUN_CHECK(command.Unread().empty(), absl::StrCat("unknown option in: ", line));
  return std::move(output_);
}

// What the time of the job has gone into, without what nothing has.
void RendezvousWorld::ShowLedger() {
  std::string line = "ledger";
  const TimeSpent spent = machine_->View(now_).spent;
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (spent.by[i] == absl::ZeroDuration()) continue;
    absl::StrAppend(&line, " ", TimeCauseName(static_cast<TimeCause>(i)), "=",
                    absl::FormatDuration(spent.by[i]));
  }
  output_.push_back(line);
}

void RendezvousWorld::StartJob(const Command& command) {
  spec_ = JobSpec();
  spec_.run_id = "job7";
  spec_.nodes_min = command.Number("min", command.Number("nodes", 1));
  spec_.nodes_max = command.Number("max", command.Number("nodes", 1));
  spec_.max_restarts = command.Number("max_restarts", 0);
  spec_.survivors_restart = command.Has("survivors_restart");
  spec_.fingerprint = "f";
  spec_.description = "train.py";
  spec_.join_timeout = command.Duration("join_timeout", spec_.join_timeout);
  spec_.last_call_timeout = command.Duration("last_call", spec_.last_call_timeout);
  spec_.lease = command.Duration("lease", spec_.lease);
  spec_.lease_is_proof = command.Has("lease");
  spec_.reconnect_grace = command.Duration("grace", spec_.reconnect_grace);
  spec_.stop_grace = command.Duration("stop_grace", spec_.stop_grace);
  spec_.agents_started = command.Number("agents", 0);
  RestartRules& rules = spec_.restart;
  rules.max_membership_changes = command.Number("changes", rules.max_membership_changes);
  rules.restart_window = command.Duration("window", rules.restart_window);
  rules.backoff_max = command.Duration("backoff", rules.backoff_max);
  rules.crash_loop = command.Number("crash_loop", rules.crash_loop);
  rules.give_up_after = command.Number("give_up", rules.give_up_after);
  rules.quarantine_after = command.Number("quarantine", rules.quarantine_after);
  rules.quarantine_shrinks = command.Has("quarantine_shrinks");
  rules.quarantine_time = command.Duration("quarantine_time", rules.quarantine_time);
  token_ = command.Text("token", "");
  const bool journal = command.Has("journal");
  keeps_at_once_ = journal && command.Text("journal", "") != "manual";
  machine_ = std::make_unique<StateMachine>(Term(command.Number("term", 7)), token_, journal);
  record_.reset();
  now_ = Instant();
  puppets_.clear();
  streams_.clear();
}

void RendezvousWorld::TakeRecord() {
  record_ = machine_->TakeRecord(now_);
  recorded_ = now_;
}

void RendezvousWorld::RestartService(const Command& command) {
  DDPRUN_CHECK(record_.has_value(), "nothing was recorded");
  for (auto& [name, puppet] : puppets_) puppet.stream.reset();
  streams_.clear();
  now_ = now_ + command.Duration("after", absl::ZeroDuration());
  ++record_->life;
  record_->vanished = NodeId(command.Text("vanished", ""));
  if (const std::string by = command.Text("by", ""); !by.empty()) {
    const auto host = puppets_.find(by);
    MarkFormerHost(
        host == puppets_.end() ? Incarnation(next_incarnation_) : host->second.incarnation,
        *record_);
  }
  machine_ = std::make_unique<StateMachine>(now_, *record_, now_ - recorded_, token_);
  machine_->CheckInvariants();
  Step(TimerDue{});
}

RendezvousWorld::Puppet& RendezvousWorld::Get(const std::string& name) {
  const auto found = puppets_.find(name);
  DDPRUN_CHECK(found != puppets_.end(), absl::StrCat("no agent is called ", name));
  return found->second;
}

void RendezvousWorld::FillJoin(const Command& command, Puppet& puppet) {
  Join& join = puppet.join;
  join.protocol_major = command.Number("major", kProtocolMajor);
  join.token = command.Text("token", token_);
  join.job = spec_;
  join.job.run_id = command.Text("run_id", spec_.run_id);
  join.job.fingerprint = command.Text("fingerprint", spec_.fingerprint);
  join.job.description = command.Text("description", spec_.description);
  join.job.max_restarts = command.Number("max_restarts", spec_.max_restarts);
  join.job.survivors_restart = spec_.survivors_restart;
  join.job.nodes_min = command.Number("nodes", spec_.nodes_min);
  join.job.nodes_max = command.Number("nodes", spec_.nodes_max);
  NodeInfo& node = join.node;
  node.release = command.Text("release", kVersion);
  const std::string host = command.Text("host", absl::StrCat("host", puppet.id.value()));
  node.hostname = host;
  node.agent_pid = command.Number("pid", 100);
  node.address = command.Text("address", host);
  node.worker_count = command.Number("workers", 1);
  node.role = command.Text("role", "default");
  node.node_rank.reset();
  if (command.Has("rank")) node.node_rank = command.Number("rank", 0);
  node.hosts_endpoint = command.Has("endpoint");
  node.hosts_service = command.Has("service");
  node.master_port = command.Number("port", 5000);
  node.store_address = command.Text("store", absl::StrCat(host, ":6000"));
}

void RendezvousWorld::OpenStream(const Command& command) {
  const std::string& name = command.subject;
  if (!puppets_.contains(name) || command.Has("new")) {
    Puppet fresh;
    fresh.id = NodeId(command.Text("as", name));
    fresh.incarnation = Incarnation(next_incarnation_++);
    FillJoin(command, fresh);
    puppets_[name] = std::move(fresh);
  }
  Puppet& puppet = puppets_[name];
  if (command.Has("as")) puppet.id = NodeId(command.Text("as", ""));
  puppet.join.node.master_port = command.Number("port", puppet.join.node.master_port);
  const std::string state = command.Text("state", "idle");
  puppet.join.group_state = state == "running"     ? GroupState::kRunning
                            : state == "stopping"  ? GroupState::kStopping
                            : state == "succeeded" ? GroupState::kSucceeded
                                                   : GroupState::kIdle;
  puppet.stream_number = StreamNumber(
      command.Number("stream", static_cast<uint32_t>(puppet.stream_number.value()) + 1));
  const StreamKey stream(next_stream_++);
  puppet.stream = stream;
  streams_[stream] = name;
  AgentMessage message = Header(puppet);
  message.term = Term(command.Number("term", static_cast<uint32_t>(puppet.term.value())));
  const bool idle = puppet.join.group_state == GroupState::kIdle;
  message.generation = Generation(
      command.Number("gen", idle ? 0 : static_cast<uint32_t>(puppet.generation.value())));
  message.run_id = puppet.join.job.run_id;
  message.body = puppet.join;
  Step(MessageReceived{stream, message});
}

AgentMessage RendezvousWorld::Header(const Puppet& puppet) const {
  AgentMessage message;
  message.run_id = spec_.run_id;
  message.term = puppet.term;
  message.node_id = puppet.id;
  message.incarnation = puppet.incarnation;
  message.stream = puppet.stream_number;
  return message;
}

WorkerFailure RendezvousWorld::Failure(const Command& command) const {
  WorkerFailure failure;
  failure.local_rank = command.Number("local", 0);
  failure.pid = 1000 + failure.local_rank;
  failure.signal = static_cast<int>(command.Number("signal", 0));
  failure.exit_code = static_cast<int>(command.Number("code", failure.signal == 0 ? 1 : 0));
  failure.message = command.Text("message", "");
  failure.stderr_tail = command.Text("stderr", "");
  failure.start_error = command.Text("start_error", "");
  failure.after_first_ms = command.Number("after", 0);
  failure.hung = command.Has("hung");
  failure.preflight = command.Has("preflight");
  return failure;
}

std::optional<NodeTime> RendezvousWorld::Time(const Command& command) const {
  if (!command.Has("trained") && !command.Has("last")) return std::nullopt;
  NodeTime time{.last = command.Duration("last", {}), .last_in = TimeCause::kTraining};
  time.spent[TimeCause::kTraining] = command.Duration("trained", {});
  return time;
}

// The report of one worker of the agent, or of "workers=" workers that are alike.
HangReport RendezvousWorld::Hangs(const Command& command) const {
  static const std::map<std::string, ProgressPhase> kPhases = {
      {"unmarked", ProgressPhase::kNone},
      {"start", ProgressPhase::kStart},
      {"train", ProgressPhase::kTrain},
      {"checkpoint", ProgressPhase::kCheckpoint},
      {"evaluation", ProgressPhase::kEvaluation},
      {"idle", ProgressPhase::kIdle},
      {"done", ProgressPhase::kDone},
      {"counted", ProgressPhase::kCounted}};
  static const std::map<std::string, Activity> kActivities = {
      {"active", Activity::kActive}, {"still", Activity::kStill}, {"stopped", Activity::kStopped}};
  HangReport report{.workers = {}, .sample = command.Duration("sample", absl::Milliseconds(300))};
  for (uint32_t i = 0; i < command.Number("workers", 1); ++i) {
    report.workers.push_back({.local_rank = command.Number("local", 0) + i,
                              .phase = kPhases.at(command.Text("phase", "train")),
                              .step = command.Number("step", 7),
                              .silent = absl::Seconds(2),
                              .suspect = command.Has("suspect"),
                              .overdue = command.Has("overdue"),
                              .early = command.Has("early"),
                              .activity = kActivities.at(command.Text("activity", "still")),
                              .where = command.Text("where", "futex"),
                              .collectives = command.Number("collectives", 0),
                              .expired = command.Has("expired"),
                              .deadlocked = command.Has("deadlocked")});
  }
  return report;
}

void RendezvousWorld::Report(const Command& command) {
  Puppet& puppet = Get(command.subject);
  DDPRUN_CHECK(puppet.stream.has_value(), absl::StrCat(command.subject, " has no stream"));
  AgentMessage message = Header(puppet);
  message.generation =
      Generation(command.Number("gen", static_cast<uint32_t>(puppet.generation.value())));
  const std::string& verb = command.verb;
  if (verb == "started") {
    message.body = WorkersStarted{};
  } else if (verb == "succeeded") {
    message.body = GroupSucceeded{};
  } else if (verb == "failed") {
    message.body = WorkerFailed{Failure(command)};
  } else if (verb == "stopped") {
    GroupStopped stopped;
    stopped.clean = !command.Has("unclean");
    stopped.master_port = command.Number("port", 5000);
    stopped.kept = command.Number("kept", 0);
    if (command.Has("step")) stopped.step = command.Number("step", 0);
    stopped.time = Time(command);
    if (command.Has("code") || command.Has("signal")) stopped.failures.push_back(Failure(command));
    message.body = stopped;
  } else if (verb == "hang") {
    message.body = Hangs(command);
  } else if (verb == "preempt") {
    message.body = Preempt{.reason = command.Text("reason", "SIGUSR1"),
                           .deadline = command.Duration("deadline", absl::Seconds(30)),
                           .ends_job = command.Has("host"),
                           .drained = command.Has("drained")};
  } else if (verb == "prepared") {
    message.body = StopPrepared{.round = command.Number("round", puppet.stop_round),
                                .look = {.heeds = !command.Has("deaf"),
                                         .below = !command.Has("past"),
                                         .highest = command.Number("step", 7),
                                         .step_time = command.Duration("takes", {})}};
  } else if (verb == "leave") {
    message.body =
        Leave{command.Text("reason", "SIGTERM"), command.Has("end"), command.Has("preempted")};
  } else if (verb == "unknown") {
    message.body = UnknownKind{};
  } else if (verb == "renew") {
    message.body = Renewal{command.Number("nonce", 0)};
  } else {
    DDPRUN_CHECK(verb == "rejoin", absl::StrCat("unknown command ", verb));
    message.body = puppet.join;
  }
  if (verb != "renew" && verb != "rejoin") {
    message.sequence = command.Number("seq", static_cast<uint32_t>(puppet.sequence) + 1);
    puppet.sequence = message.sequence;
  }
  if (command.Has("as")) message.node_id = NodeId(command.Text("as", ""));
  Step(MessageReceived{*puppet.stream, message});
}

void RendezvousWorld::Cut(const Command& command) {
  Puppet& puppet = Get(command.subject);
  const bool cut = command.verb == "cut";
  const bool both = !cut || command.Has("both");
  if (both || command.Has("in")) puppet.cut_in = cut;
  if (both || command.Has("out")) puppet.cut_out = cut;
}

void RendezvousWorld::Advance(absl::Duration duration) {
  const Instant end = now_ + duration;
  while (machine_->NextDeadline() <= end) {
    now_ = std::max(now_, machine_->NextDeadline());
    Step(TimerDue{});
  }
  now_ = end;
}

void RendezvousWorld::Step(const Event& event) {
  answers_.push_back(event);
  while (!answers_.empty()) {
    const std::vector<Event> events = std::exchange(answers_, {});
    for (const Event& next : events) {
      for (const Effect& effect : machine_->Step(now_, next)) Take(effect);
      machine_->CheckInvariants();
    }
  }
}

std::string RendezvousWorld::StreamName(StreamKey stream) const {
  const auto found = streams_.find(stream);
  return found == streams_.end() ? DefaultStreamName(stream) : found->second;
}

void RendezvousWorld::Take(const Effect& effect) {
  if (std::holds_alternative<Persist>(effect) && keeps_at_once_) {
    TakeRecord();
    answers_.push_back(PersistDone{absl::OkStatus()});
  }
  const Send* send = std::get_if<Send>(&effect);
  const bool probe = send != nullptr && std::holds_alternative<Probe>(*send->message);
  if (show_probes_ || !probe) {
    const auto name = [this](StreamKey stream) { return StreamName(stream); };
    // The scripts hold for each release.
    output_.push_back(
        absl::StrReplaceAll(absl::StrCat(ToString(now_), " ", TraceText(effect, name)),
                            {{absl::StrCat("ddprun ", kVersion), "ddprun (ours)"},
                             {absl::StrCat("has ", kVersion), "has (ours)"}}));
  }
  if (send != nullptr && streams_.contains(send->stream)) {
    Puppet& puppet = Get(streams_.at(send->stream));
    if (puppet.stream == send->stream) TakeMessage(puppet, *send->message);
  }
  if (const CloseStream* close = std::get_if<CloseStream>(&effect)) {
    const auto found = streams_.find(close->stream);
    if (found == streams_.end()) return;
    Puppet& puppet = Get(found->second);
    if (puppet.stream == close->stream) puppet.stream.reset();
    streams_.erase(found);
    answers_.push_back(StreamClosed{close->stream, /*finished=*/true});
  }
}

void RendezvousWorld::TakeMessage(Puppet& puppet, const ServiceMessage& message) {
  if (puppet.cut_out) return;
  if (const Welcome* welcome = std::get_if<Welcome>(&message)) puppet.term = welcome->term;
  if (const Assignment* assignment = std::get_if<Assignment>(&message)) {
    puppet.generation = assignment->generation;
  }
  if (const PrepareStop* prepare = std::get_if<PrepareStop>(&message)) {
    puppet.stop_round = prepare->round;
  }
  const Probe* probe = std::get_if<Probe>(&message);
  if (probe == nullptr || puppet.cut_in) return;
  AgentMessage renewal = Header(puppet);
  renewal.body = Renewal{.nonce = probe->nonce,
                         .progress = puppet.progress,
                         .gpus = puppet.gpus,
                         .can_rejoin = puppet.can_rejoin};
  if (!puppet.progress.empty()) renewal.generation = puppet.generation;
  answers_.push_back(MessageReceived{*puppet.stream, renewal});
}

}  // namespace ddprun::testing
