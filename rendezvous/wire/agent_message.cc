#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "base/progress_page.h"
#include "base/version.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/convert_parts.h"
#include "rendezvous/wire/field_checker.h"
#include "rendezvous/wire/fields.h"

namespace ddprun::rendezvous {
namespace {

constexpr EnumTable<GroupState, v1::GroupState, 4> kGroupStates = {
    "state",
    {{GroupState::kIdle, v1::GROUP_STATE_IDLE},
     {GroupState::kRunning, v1::GROUP_STATE_RUNNING},
     {GroupState::kStopping, v1::GROUP_STATE_STOPPING},
     {GroupState::kSucceeded, v1::GROUP_STATE_SUCCEEDED}}};
static_assert(std::size(kGroupStates.values) + 1 == v1::GroupState_ARRAYSIZE);

constexpr EnumTable<Activity, v1::Activity, 4> kActivities = {
    "activity",
    {{Activity::kUnknown, v1::ACTIVITY_UNSPECIFIED},
     {Activity::kActive, v1::ACTIVITY_ACTIVE},
     {Activity::kStill, v1::ACTIVITY_STILL},
     {Activity::kStopped, v1::ACTIVITY_STOPPED}}};
static_assert(std::size(kActivities.values) == v1::Activity_ARRAYSIZE);

}  // namespace

// Without the job's run id.
template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, Join>& core, ProtoOf<Wire, v1::Join>& proto) {
  wire.Any(DDPRUN_FIELD(protocol_major));
  wire.Text(DDPRUN_FIELD(token), kTextBytesMax,
            [](absl::string_view token, size_t) { return ValidUtf8(token); });
  if constexpr (Wire::kReads) {
    wire.Require(proto.has_job(), "job", "is missing");
    wire.Require(proto.has_node(), "node", "is missing");
    core.job = ReadJobSpec(wire.checker(), wire.Path("job"), "", proto.job());
    core.node =
        ReadNodeInfo(wire.checker(), wire.Path("node"), proto.node(), proto.job().nodes_max());
  } else {
    WriteJobSpec(core.job, proto.mutable_job());
    WriteNodeInfo(core.node, proto.mutable_node());
  }
  wire.CutName(DDPRUN_FIELD_AS(node.release, release));
  wire.Enum(DDPRUN_FIELD(group_state), kGroupStates);
  wire.Microseconds(DDPRUN_FIELD_AS(job_age, job_age_us));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, GroupProgress>& core, ProtoOf<Wire, v1::GroupProgress>& proto) {
  wire.Text(DDPRUN_FIELD(name), kGroupNameBytesMax);
  wire.Any(DDPRUN_FIELD(sequence));
  wire.Any(DDPRUN_FIELD(size));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, WorkerProgress>& core,
            ProtoOf<Wire, v1::WorkerProgress>& proto) {
  wire.Number(DDPRUN_FIELD(local_rank), 0, kWorkersPerNodeMax - 1);
  wire.Number(DDPRUN_FIELD(phase), 0, static_cast<uint32_t>(ProgressPhase::kCounted));
  wire.Step(DDPRUN_FIELD(step));
  wire.Any(DDPRUN_FIELD(suspect));
  wire.Any(DDPRUN_FIELD(overdue));
  wire.Enum(DDPRUN_FIELD(activity), kActivities);
  wire.Text(DDPRUN_FIELD(where), kWhereBytesMax);
  wire.Any(DDPRUN_FIELD(collectives));
  wire.Any(DDPRUN_FIELD(expired));
  wire.Any(DDPRUN_FIELD(idle));
  wire.Any(DDPRUN_FIELD(deadlocked));
  wire.Any(DDPRUN_FIELD(early));
  wire.Any(DDPRUN_FIELD(left));
  if constexpr (Wire::kReads) {
    const auto most = static_cast<uint64_t>(absl::ToInt64Milliseconds(kTimeoutMax));
    core.silent = absl::Milliseconds(static_cast<int64_t>(std::min(proto.silent_ms(), most)));
    wire.checker()->Count(wire.Path("groups"), proto.groups_size(), kGroupsMax);
    for (const v1::GroupProgress& group : proto.groups()) {
      if (core.groups.size() == kGroupsMax) break;
      core.groups.push_back(Read<GroupProgress>(wire.checker(), wire.Path("groups"), group));
    }
  } else {
    proto.set_silent_ms(ToWholeMilliseconds(core.silent));
    for (const GroupProgress& group : core.groups) {
      if (static_cast<size_t>(proto.groups_size()) == kGroupsMax) break;
      Write(group, proto.add_groups());
    }
  }
  wire.Text(DDPRUN_FIELD(inside_group), kGroupNameBytesMax);
  wire.Text(DDPRUN_FIELD(inside_call), kGroupNameBytesMax);
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, HangReport>& core, ProtoOf<Wire, v1::HangReport>& proto) {
  wire.Milliseconds(DDPRUN_FIELD_AS(sample, sample_ms), kHangSample);
  if constexpr (Wire::kReads) {
    wire.checker()->Count(wire.Path("workers"), proto.workers_size(), kWorkersPerNodeMax);
    if (!wire.checker()->status().ok()) return;
    std::set<uint32_t> seen;
    for (const v1::WorkerProgress& worker : proto.workers()) {
      core.workers.push_back(Read<WorkerProgress>(wire.checker(), wire.Path("workers"), worker));
      wire.Require(seen.insert(worker.local_rank()).second, "workers.local_rank",
                   worker.local_rank(), " comes twice");
    }
  } else {
    for (const WorkerProgress& worker : core.workers) Write(worker, proto.add_workers());
  }
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, Leave>& core, ProtoOf<Wire, v1::Leave>& proto) {
  wire.Text(DDPRUN_FIELD(reason));
  wire.Any(DDPRUN_FIELD(end_job));
  wire.Any(DDPRUN_FIELD(preempted));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, Preempt>& core, ProtoOf<Wire, v1::Preempt>& proto) {
  wire.Text(DDPRUN_FIELD(reason));
  wire.Milliseconds(DDPRUN_FIELD_AS(deadline, deadline_ms), JobSpec().stop_grace);
  wire.Any(DDPRUN_FIELD(ends_job));
  wire.Any(DDPRUN_FIELD(drained));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, StopPrepared>& core, ProtoOf<Wire, v1::StopPrepared>& proto) {
  wire.Step(DDPRUN_FIELD_AS(look.highest, highest_step));
  wire.NonZero(DDPRUN_FIELD(round));
  wire.Any(DDPRUN_FIELD_AS(look.heeds, heeds));
  wire.Any(DDPRUN_FIELD_AS(look.below, below));
  if constexpr (Wire::kReads) {
    core.look.step_time = absl::Microseconds(proto.step_us());
  } else {
    proto.set_step_us(ToBoundedMicroseconds(core.look.step_time));
  }
}

namespace {

std::optional<NodeTime> ReadNodeTime(FieldChecker* checker, bool has, const std::string& field,
                                     const v1::NodeTime& proto) {
  if (!has) return std::nullopt;
  NodeTime time;
  checker->Count(field + ".spent", proto.spent_size(), 2 * kTimeCauses);
  for (const v1::CauseTime& entry : proto.spent()) {
    absl::Duration& spent = time.spent[ReadTimeCause(entry.cause())];
    spent = std::min(spent + checker->Microseconds(field + ".spent.us", entry.us()),
                     absl::Duration(absl::Microseconds(kTimeMaxUs)));
  }
  time.last = checker->Microseconds(field + ".last_us", proto.last_us());
  time.last_in = proto.last_in() == v1::TIME_CAUSE_UNSPECIFIED ? TimeCause::kUnmarked
                                                               : ReadTimeCause(proto.last_in());
  return time;
}

GroupStopped ReadGroupStopped(FieldChecker* checker, const v1::GroupStopped& proto) {
  GroupStopped stopped;
  stopped.failures = ReadFailures(checker, "group_stopped.failures", proto.failures());
  stopped.clean = proto.clean();
  stopped.master_port = checker->Port("group_stopped.master_port", proto.master_port());
  if (proto.has_step()) {
    checker->Require(proto.step() <= kProgressStepMax, "group_stopped.step", "is above 2^56 - 1");
    stopped.step = proto.step();
  }
  stopped.time = ReadNodeTime(checker, proto.has_time(), "group_stopped.time", proto.time());
  checker->Count("group_stopped.left", proto.left_size(), kFailuresMax);
  stopped.left.assign(proto.left().begin(), proto.left().end());
  stopped.kept = checker->Number("group_stopped.kept", proto.kept(), 0, kWorkersPerNodeMax);
  return stopped;
}

WorkerFailed ReadWorkerFailed(FieldChecker* checker, const v1::WorkerFailed& proto) {
  checker->Present("worker_failed.failure", proto.has_failure());
  return {ReadFailure(checker, "worker_failed.failure", proto.failure())};
}

std::vector<GpuUse> ReadGpus(FieldChecker* checker, const v1::Renewal& proto) {
  std::vector<GpuUse> gpus;
  checker->Count("renewal.gpus", proto.gpus_size(), kGpusMax);
  if (!checker->status().ok()) return gpus;
  std::set<uint32_t> seen;
  for (const v1::GpuStatus& gpu : proto.gpus()) {
    checker->Require(seen.insert(gpu.index()).second, "renewal.gpus",
                     absl::StrCat("reports GPU ", gpu.index(), " twice"));
    gpus.push_back({.index = gpu.index(),
                    .utilization = std::nullopt,
                    .memory_used = gpu.memory_used_bytes(),
                    .memory_total = gpu.memory_total_bytes(),
                    .lost = gpu.lost()});
    if (gpu.has_utilization_percent()) {
      gpus.back().utilization = checker->Number("renewal.gpus.utilization_percent",
                                                gpu.utilization_percent(), 0, kPercentMax);
    }
  }
  return gpus;
}

std::optional<WarmUse> ReadWarm(FieldChecker* checker, const v1::Renewal& proto) {
  if (!proto.has_warm()) return std::nullopt;
  const v1::WarmStatus& warm = proto.warm();
  return WarmUse{
      .warm_workers =
          checker->Number("renewal.warm.warm_workers", warm.warm_workers(), 0, kWorkersPerNodeMax),
      .cold_workers =
          checker->Number("renewal.warm.cold_workers", warm.cold_workers(), 0, kWorkersPerNodeMax),
      .saved = absl::Milliseconds(warm.saved_ms()),
      .parked_bytes = warm.parked_bytes(),
      .why_cold = checker->Text("renewal.warm.why_cold", warm.why_cold(), kNameBytesMax)};
}

std::map<uint32_t, HoldUp> ReadHoldUps(FieldChecker* checker, const v1::Renewal& proto) {
  std::map<uint32_t, HoldUp> hold_ups;
  checker->Require(proto.hold_ups_size() <= static_cast<int>(kHoldUpsMax), "renewal.hold_ups",
                   absl::StrCat("reports ", proto.hold_ups_size(), ", at most ", kHoldUpsMax));
  for (const v1::HoldUp& hold_up : proto.hold_ups()) {
    const uint32_t local_rank = checker->Number("renewal.hold_ups.local_rank", hold_up.local_rank(),
                                                0, kWorkersPerNodeMax - 1);
    hold_ups[local_rank] = {
        .lasted = absl::Milliseconds(hold_up.lasted_ms()),
        .why = checker->Text("renewal.hold_ups.why", hold_up.why(), kNameBytesMax)};
  }
  return hold_ups;
}

Renewal ReadRenewal(FieldChecker* checker, const v1::Renewal& proto) {
  const int count = proto.progress_size();
  checker->Require(
      count <= static_cast<int>(kWorkersPerNodeMax), "renewal.progress",
      absl::StrCat("reports ", count, " workers, a node has at most ", kWorkersPerNodeMax));
  return {.nonce = proto.nonce(),
          .progress = {proto.progress().begin(), proto.progress().end()},
          .step_time = absl::Microseconds(proto.step_us()),
          .time = ReadNodeTime(checker, proto.has_time(), "renewal.time", proto.time()),
          .gpus = ReadGpus(checker, proto),
          .warm = ReadWarm(checker, proto),
          .can_rejoin = proto.can_rejoin(),
          .hold_ups = ReadHoldUps(checker, proto),
          .checkpoint_bytes = proto.has_checkpoint_bytes() ? std::optional(proto.checkpoint_bytes())
                                                           : std::nullopt};
}

void Write(const NodeTime& time, v1::NodeTime* proto) {
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (time.spent.by[i] <= absl::ZeroDuration()) continue;
    v1::CauseTime* entry = proto->add_spent();
    entry->set_cause(WriteTimeCause(static_cast<TimeCause>(i)));
    entry->set_us(ToMicroseconds(time.spent.by[i]));
  }
  proto->set_last_us(ToMicroseconds(time.last));
  proto->set_last_in(WriteTimeCause(time.last_in));
}

void Write(const GroupStopped& stopped, v1::GroupStopped* proto) {
  WriteFailures(stopped.failures, proto->mutable_failures());
  proto->set_clean(stopped.clean);
  proto->set_master_port(stopped.master_port);
  if (stopped.step.has_value()) proto->set_step(*stopped.step);
  if (stopped.time.has_value()) Write(*stopped.time, proto->mutable_time());
  proto->mutable_left()->Assign(stopped.left.begin(), stopped.left.end());
  proto->set_kept(stopped.kept);
}

void Write(const Renewal& renewal, v1::Renewal* proto) {
  proto->set_nonce(renewal.nonce);
  proto->mutable_progress()->Assign(renewal.progress.begin(), renewal.progress.end());
  proto->set_step_us(ToBoundedMicroseconds(renewal.step_time));
  if (renewal.time.has_value()) Write(*renewal.time, proto->mutable_time());
  WriteGpus(renewal.gpus, proto->mutable_gpus());
  if (renewal.warm.has_value()) WriteWarm(*renewal.warm, proto->mutable_warm());
  proto->set_can_rejoin(renewal.can_rejoin);
  if (renewal.checkpoint_bytes) proto->set_checkpoint_bytes(*renewal.checkpoint_bytes);
  for (const auto& [local_rank, hold_up] : renewal.hold_ups) {
    if (proto->hold_ups_size() == static_cast<int>(kHoldUpsMax)) break;
    v1::HoldUp& told = *proto->add_hold_ups();
    told.set_local_rank(local_rank);
    told.set_lasted_ms(ToMillisecondsOrZero(hold_up.lasted));
    told.set_why(CutText(hold_up.why, kNameBytesMax));
  }
}

// Checked before everything else, because fields of another major may mean anything.
absl::Status CheckMajor(const v1::Join& join) {
  if (join.protocol_major() == kProtocolMajor) return absl::OkStatus();
  const bool agent_is_older = join.protocol_major() < kProtocolMajor;
  return absl::FailedPreconditionError(absl::StrCat(
      "the agent (release '", CutText(join.release(), kReleaseQuotedMax), "') speaks protocol ",
      join.protocol_major(), ", this rendezvous service (release '", kVersion,
      "') speaks protocol ", kProtocolMajor, ": upgrade ddprun ",
      agent_is_older ? "on the agent's node" : "where the rendezvous service runs"));
}

// Whether a message without a body of this release has one of a later release.
bool HasMoreThanHead(v1::AgentMessage message) {
  message.clear_run_id();
  message.clear_term();
  message.clear_node_id();
  message.clear_incarnation();
  message.clear_stream();
  message.clear_generation();
  message.clear_sequence();
  return message.ByteSizeLong() > 0;
}

void ReadBody(FieldChecker* checker, const v1::AgentMessage& proto, AgentMessage* message) {
  switch (proto.body_case()) {
    case v1::AgentMessage::kJoin:
      message->body = Read<Join>(checker, "join", proto.join());
      std::get<Join>(message->body).job.run_id = proto.run_id();
      break;
    case v1::AgentMessage::kRenewal:
      message->body = ReadRenewal(checker, proto.renewal());
      break;
    case v1::AgentMessage::kHeartbeat:
      message->body = Heartbeat{checker->NonZero("heartbeat.key", proto.heartbeat().key())};
      break;
    case v1::AgentMessage::kWorkersStarted:
      message->body = WorkersStarted{};
      break;
    case v1::AgentMessage::kWorkerFailed:
      message->body = ReadWorkerFailed(checker, proto.worker_failed());
      break;
    case v1::AgentMessage::kGroupSucceeded:
      message->body =
          GroupSucceeded{ReadNodeTime(checker, proto.group_succeeded().has_time(),
                                      "group_succeeded.time", proto.group_succeeded().time())};
      break;
    case v1::AgentMessage::kGroupStopped:
      message->body = ReadGroupStopped(checker, proto.group_stopped());
      break;
    case v1::AgentMessage::kLeave:
      message->body = Read<Leave>(checker, "leave", proto.leave());
      break;
    case v1::AgentMessage::kHangReport:
      message->body = Read<HangReport>(checker, "hang_report", proto.hang_report());
      break;
    case v1::AgentMessage::kPreempt:
      message->body = Read<Preempt>(checker, "preempt", proto.preempt());
      break;
    case v1::AgentMessage::kStopPrepared:
      message->body = Read<StopPrepared>(checker, "stop_prepared", proto.stop_prepared());
      break;
    case v1::AgentMessage::BODY_NOT_SET:
      checker->Require(HasMoreThanHead(proto), "body", "is missing");
      message->body = UnknownKind{};
      break;
  }
}

}  // namespace

absl::StatusOr<AgentMessage> FromProto(const v1::AgentMessage& proto) {
  if (proto.has_join()) {
    if (absl::Status status = CheckMajor(proto.join()); !status.ok()) return status;
  }
  FieldChecker checker;
  AgentMessage message;
  message.run_id = checker.Name("run_id", proto.run_id());
  message.term = Term(proto.term());
  message.node_id = NodeId(checker.Name("node_id", proto.node_id()));
  message.incarnation = Incarnation(checker.NonZero("incarnation", proto.incarnation()));
  message.stream = StreamNumber(checker.NonZero("stream", proto.stream()));
  message.generation = Generation(proto.generation());
  message.sequence = proto.sequence();
  ReadBody(&checker, proto, &message);
  const bool repeatable = proto.has_join() || proto.has_renewal() || proto.has_heartbeat();
  // A message of an unknown kind may be one that is repeated, or an event.
  const bool is_known = proto.body_case() != v1::AgentMessage::BODY_NOT_SET;
  checker.Require(!is_known || repeatable == (proto.sequence() == 0), "sequence",
                  repeatable ? "is not 0 in a Join, Renewal or Heartbeat" : "is 0 in an event");
  if (!checker.status().ok()) return checker.status();
  return message;
}

v1::AgentMessage ToProto(const AgentMessage& message) {
  v1::AgentMessage proto;
  proto.set_run_id(ValidUtf8(message.run_id));
  proto.set_term(message.term.value());
  proto.set_node_id(ValidUtf8(message.node_id.value()));
  proto.set_incarnation(message.incarnation.value());
  proto.set_stream(message.stream.value());
  proto.set_generation(message.generation.value());
  proto.set_sequence(message.sequence);
  std::visit(
      Overloaded{
          [&](const Join& join) { Write(join, proto.mutable_join()); },
          [&](const Renewal& renewal) { Write(renewal, proto.mutable_renewal()); },
          [&](const Heartbeat& heartbeat) { proto.mutable_heartbeat()->set_key(heartbeat.key); },
          [&](const WorkersStarted&) { proto.mutable_workers_started(); },
          [&](const WorkerFailed& failed) {
            WriteFailure(failed.failure, proto.mutable_worker_failed()->mutable_failure());
          },
          [&](const GroupSucceeded& succeeded) {
            v1::GroupSucceeded* body = proto.mutable_group_succeeded();
            if (succeeded.time.has_value()) Write(*succeeded.time, body->mutable_time());
          },
          [&](const GroupStopped& stopped) { Write(stopped, proto.mutable_group_stopped()); },
          [&](const Leave& leave) { Write(leave, proto.mutable_leave()); },
          [&](const HangReport& report) { Write(report, proto.mutable_hang_report()); },
          [&](const Preempt& preempt) { Write(preempt, proto.mutable_preempt()); },
          [&](const StopPrepared& body) { Write(body, proto.mutable_stop_prepared()); },
          [](const UnknownKind&) {},  // only received
      },
      message.body);
  return proto;
}

}  // namespace ddprun::rendezvous
