#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/version.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/convert_failure.h"
#include "rendezvous/wire/convert_parts.h"
#include "rendezvous/wire/field_checker.h"
#include "rendezvous/wire/text.h"

namespace ddprun::rendezvous {
namespace {

GroupState ReadGroupState(FieldChecker* checker, int state) {
  switch (state) {
    case v1::GROUP_STATE_IDLE:
      return GroupState::kIdle;
    case v1::GROUP_STATE_RUNNING:
      return GroupState::kRunning;
    case v1::GROUP_STATE_STOPPING:
      return GroupState::kStopping;
    case v1::GROUP_STATE_SUCCEEDED:
      return GroupState::kSucceeded;
    default:  // open enumerations of proto3 take any number
      checker->Require(false, "join.group_state", absl::StrCat(state, " is no known state"));
      return GroupState::kIdle;
  }
}

Join ReadJoin(FieldChecker* checker, const std::string& run_id, const v1::Join& proto) {
  Join join;
  join.protocol_major = proto.protocol_major();
  join.protocol_minor = proto.protocol_minor();
  join.token = checker->Text("join.token", proto.token());
  checker->Present("join.job", proto.has_job());
  checker->Present("join.node", proto.has_node());
  join.job = ReadJobSpec(checker, "join.job", run_id, proto.job());
  join.node = ReadNodeInfo(checker, "join.node", proto.node(), proto.job().nodes_max());
  join.node.release = checker->OptionalName("join.release", proto.release());
  join.group_state = ReadGroupState(checker, proto.group_state());
  join.job_age = checker->Microseconds("join.job_age_us", proto.job_age_us());
  return join;
}

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

Activity ReadActivity(FieldChecker* checker, int activity) {
  switch (activity) {
    case v1::ACTIVITY_UNSPECIFIED:
      return Activity::kUnknown;
    case v1::ACTIVITY_ACTIVE:
      return Activity::kActive;
    case v1::ACTIVITY_STILL:
      return Activity::kStill;
    case v1::ACTIVITY_STOPPED:
      return Activity::kStopped;
    default:  // open enumerations of proto3 take any number
      checker->Require(false, "hang_report.workers.activity",
                       absl::StrCat(activity, " is no known activity"));
      return Activity::kUnknown;
  }
}

WorkerProgress ReadWorkerProgress(FieldChecker* checker, const v1::WorkerProgress& proto) {
  WorkerProgress worker;
  worker.local_rank = checker->Number("hang_report.workers.local_rank", proto.local_rank(), 0,
                                      kWorkersPerNodeMax - 1);
  worker.phase =
      static_cast<ProgressPhase>(checker->Number("hang_report.workers.phase", proto.phase(), 0,
                                                 static_cast<uint32_t>(ProgressPhase::kCounted)));
  worker.step = proto.step();
  checker->Require(proto.step() <= kProgressStepMax, "hang_report.workers.step",
                   absl::StrCat(proto.step(), " is not below 2^56"));
  const auto most = static_cast<uint64_t>(absl::ToInt64Milliseconds(kTimeoutMax));
  worker.silent = absl::Milliseconds(static_cast<int64_t>(std::min(proto.silent_ms(), most)));
  worker.suspect = proto.suspect();
  worker.overdue = proto.overdue();
  worker.activity = ReadActivity(checker, proto.activity());
  worker.where = checker->Text("hang_report.workers.where", proto.where(), kWhereBytesMax);
  worker.collectives = proto.collectives();
  worker.expired = proto.expired();
  worker.idle = proto.idle();
  worker.deadlocked = proto.deadlocked();
  worker.early = proto.early();
  worker.left = proto.left();
  checker->Count("hang_report.workers.groups", proto.groups_size(), kGroupsMax);
  for (const v1::GroupProgress& group : proto.groups()) {
    if (worker.groups.size() == kGroupsMax) break;
    worker.groups.push_back(
        {.name = checker->Text("hang_report.workers.groups.name", group.name(), kGroupNameBytesMax),
         .sequence = group.sequence(),
         .size = group.size()});
  }
  worker.inside_group =
      checker->Text("hang_report.workers.inside_group", proto.inside_group(), kGroupNameBytesMax);
  worker.inside_call =
      checker->Text("hang_report.workers.inside_call", proto.inside_call(), kGroupNameBytesMax);
  return worker;
}

HangReport ReadHangReport(FieldChecker* checker, const v1::HangReport& proto) {
  HangReport report;
  report.sample = checker->Milliseconds("hang_report.sample_ms", proto.sample_ms(), kHangSample);
  checker->Count("hang_report.workers", proto.workers_size(), kWorkersPerNodeMax);
  if (!checker->status().ok()) return report;
  std::set<uint32_t> seen;
  for (const v1::WorkerProgress& worker : proto.workers()) {
    report.workers.push_back(ReadWorkerProgress(checker, worker));
    checker->Require(seen.insert(worker.local_rank()).second, "hang_report.workers.local_rank",
                     absl::StrCat(worker.local_rank(), " comes twice"));
  }
  return report;
}

Leave ReadLeave(FieldChecker* checker, const v1::Leave& proto) {
  return {.reason = checker->Text("leave.reason", proto.reason()),
          .end_job = proto.end_job(),
          .preempted = proto.preempted()};
}

StopPrepared ReadStopPrepared(FieldChecker* checker, const v1::StopPrepared& proto) {
  checker->Require(proto.highest_step() <= kProgressStepMax, "stop_prepared.highest_step",
                   absl::StrCat(proto.highest_step(), " is not below 2^56"));
  checker->Require(proto.round() != 0, "stop_prepared.round", "is 0");
  return {.round = proto.round(),
          .look = {.heeds = proto.heeds(),
                   .below = proto.below(),
                   .highest = proto.highest_step(),
                   .step_time = absl::Microseconds(proto.step_us())}};
}

Preempt ReadPreempt(FieldChecker* checker, const v1::Preempt& proto) {
  return {.reason = checker->Text("preempt.reason", proto.reason()),
          .deadline = checker->Milliseconds("preempt.deadline_ms", proto.deadline_ms(),
                                            JobSpec().stop_grace),
          .ends_job = proto.ends_job(),
          .drained = proto.drained()};
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
          .hold_ups = ReadHoldUps(checker, proto)};
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

void ReadBody(FieldChecker* checker, const v1::AgentMessage& proto, AgentMessage* message) {
  switch (proto.body_case()) {
    case v1::AgentMessage::kJoin:
      message->body = ReadJoin(checker, proto.run_id(), proto.join());
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
      message->body = ReadLeave(checker, proto.leave());
      break;
    case v1::AgentMessage::kHangReport:
      message->body = ReadHangReport(checker, proto.hang_report());
      break;
    case v1::AgentMessage::kPreempt:
      message->body = ReadPreempt(checker, proto.preempt());
      break;
    case v1::AgentMessage::kStopPrepared:
      message->body = ReadStopPrepared(checker, proto.stop_prepared());
      break;
    case v1::AgentMessage::BODY_NOT_SET:
      checker->Require(!proto.GetReflection()->GetUnknownFields(proto).empty(), "body",
                       "is missing");
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

}  // namespace ddprun::rendezvous
