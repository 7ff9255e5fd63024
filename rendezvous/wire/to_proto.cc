#include <algorithm>
#include <limits>
#include <utility>
#include <variant>

#include "base/progress_page.h"
#include "base/version.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/convert_failure.h"
#include "rendezvous/wire/convert_parts.h"
#include "rendezvous/wire/text.h"

namespace ddprun::rendezvous {
namespace {

template <typename... Handlers>
struct Overloaded : Handlers... {
  using Handlers::operator()...;
};
template <typename... Handlers>
Overloaded(Handlers...) -> Overloaded<Handlers...>;

uint32_t BoundedMicroseconds(absl::Duration time) {
  constexpr int64_t kMost = std::numeric_limits<uint32_t>::max();
  return static_cast<uint32_t>(std::clamp<int64_t>(absl::ToInt64Microseconds(time), 0, kMost));
}

v1::GroupState ToProto(GroupState state) {
  switch (state) {
    case GroupState::kIdle:
      return v1::GROUP_STATE_IDLE;
    case GroupState::kRunning:
      return v1::GROUP_STATE_RUNNING;
    case GroupState::kStopping:
      return v1::GROUP_STATE_STOPPING;
    case GroupState::kSucceeded:
      return v1::GROUP_STATE_SUCCEEDED;
  }
  return v1::GROUP_STATE_UNSPECIFIED;
}

uint64_t MicrosecondsOf(absl::Duration duration) {
  return static_cast<uint64_t>(absl::ToInt64Microseconds(std::max(duration, absl::ZeroDuration())));
}

void Write(const Join& join, v1::Join* proto) {
  proto->set_protocol_major(join.protocol_major);
  proto->set_protocol_minor(join.protocol_minor);
  proto->set_release(CutText(join.node.release, kNameBytesMax));
  proto->set_token(ValidUtf8(join.token));
  WriteJobSpec(join.job, proto->mutable_job());
  WriteNodeInfo(join.node, proto->mutable_node());
  proto->set_group_state(ToProto(join.group_state));
  proto->set_job_age_us(MicrosecondsOf(join.job_age));
}

void Write(const NodeTime& time, v1::NodeTime* proto) {
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (time.spent.by[i] <= absl::ZeroDuration()) continue;
    v1::CauseTime* entry = proto->add_spent();
    entry->set_cause(WriteTimeCause(static_cast<TimeCause>(i)));
    entry->set_us(MicrosecondsOf(time.spent.by[i]));
  }
  proto->set_last_us(MicrosecondsOf(time.last));
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

v1::Activity ToProto(Activity activity) {
  switch (activity) {
    case Activity::kUnknown:
      return v1::ACTIVITY_UNSPECIFIED;
    case Activity::kActive:
      return v1::ACTIVITY_ACTIVE;
    case Activity::kStill:
      return v1::ACTIVITY_STILL;
    case Activity::kStopped:
      return v1::ACTIVITY_STOPPED;
  }
  return v1::ACTIVITY_UNSPECIFIED;
}

void Write(const HangReport& report, v1::HangReport* proto) {
  proto->set_sample_ms(ToMilliseconds(report.sample));
  for (const WorkerProgress& worker : report.workers) {
    v1::WorkerProgress* entry = proto->add_workers();
    entry->set_local_rank(worker.local_rank);
    entry->set_phase(static_cast<uint32_t>(worker.phase));
    entry->set_step(worker.step);
    const absl::Duration silent = std::max(worker.silent, absl::ZeroDuration());
    entry->set_silent_ms(static_cast<uint64_t>(absl::ToInt64Milliseconds(silent)));
    entry->set_suspect(worker.suspect);
    entry->set_overdue(worker.overdue);
    entry->set_activity(ToProto(worker.activity));
    entry->set_where(CutText(worker.where, kWhereBytesMax));
    entry->set_collectives(worker.collectives);
    entry->set_expired(worker.expired);
    entry->set_idle(worker.idle);
    entry->set_deadlocked(worker.deadlocked);
    entry->set_early(worker.early);
    entry->set_left(worker.left);
    for (const GroupProgress& group : worker.groups) {
      if (static_cast<size_t>(entry->groups_size()) == kGroupsMax) break;
      v1::GroupProgress* added = entry->add_groups();
      added->set_name(CutText(group.name, kGroupNameBytesMax));
      added->set_sequence(group.sequence);
      added->set_size(group.size);
    }
    entry->set_inside_group(CutText(worker.inside_group, kGroupNameBytesMax));
    entry->set_inside_call(CutText(worker.inside_call, kGroupNameBytesMax));
  }
}

void Write(const Leave& leave, v1::Leave* proto) {
  proto->set_reason(CutText(leave.reason, kTextBytesMax));
  proto->set_end_job(leave.end_job);
  proto->set_preempted(leave.preempted);
}

void Write(const Preempt& preempt, v1::Preempt* proto) {
  proto->set_reason(CutText(preempt.reason, kTextBytesMax));
  proto->set_deadline_ms(ToMilliseconds(preempt.deadline));
  proto->set_ends_job(preempt.ends_job);
  proto->set_drained(preempt.drained);
}

void Write(const StopPrepared& prepared, v1::StopPrepared* proto) {
  proto->set_round(prepared.round);
  proto->set_heeds(prepared.look.heeds);
  proto->set_below(prepared.look.below);
  proto->set_highest_step(prepared.look.highest);
  proto->set_step_us(BoundedMicroseconds(prepared.look.step_time));
}

void Write(const Welcome& welcome, v1::Welcome* proto) {
  proto->set_term(welcome.term.value());
  proto->set_protocol_major(kProtocolMajor);
  proto->set_protocol_minor(kProtocolMinor);
  proto->set_release(CutText(welcome.release.empty() ? kVersion : welcome.release, kNameBytesMax));
  proto->set_lease_ms(ToMilliseconds(welcome.lease));
  proto->set_processed_sequence(welcome.processed_sequence);
  proto->set_heartbeat_key(welcome.heartbeat_key);
  proto->set_job_age_us(MicrosecondsOf(welcome.job_age));
}

void Write(const Probe& probe, v1::Probe* proto) {
  proto->set_nonce(probe.nonce);
  proto->set_processed_sequence(probe.processed_sequence);
  if (probe.lease > absl::ZeroDuration()) proto->set_lease_ms(ToMilliseconds(probe.lease));
}

void Write(const Standby& standby, v1::Standby* proto) {
  proto->set_reason(CutText(standby.reason, kTextBytesMax));
  proto->set_spare(standby.spare);
  proto->set_nodes_present(standby.nodes_present);
  proto->set_nodes_wanted(standby.nodes_wanted);
}

void Write(const Assignment& assignment, v1::Assignment* proto) {
  proto->set_generation(assignment.generation.value());
  proto->set_restart_count(assignment.restart_count);
  proto->set_world_size(assignment.world_size);
  proto->set_group_rank(assignment.group_rank);
  proto->set_group_world_size(assignment.group_world_size);
  proto->set_base_rank(assignment.base_rank);
  proto->set_base_role_rank(assignment.base_role_rank);
  proto->set_role_world_size(assignment.role_world_size);
  proto->set_master_addr(ValidUtf8(assignment.master_addr));
  proto->set_master_port(assignment.master_port);
  proto->set_store_address(ValidUtf8(assignment.store_address));
  proto->set_reason(CutText(assignment.reason, kTextBytesMax));
  proto->set_rule(CutText(assignment.rule, kNameBytesMax));
  proto->set_restarts_charged(assignment.restarts_charged);
  proto->set_redone_to(assignment.redone_to);
}

void Write(const StopWorkers& stop, v1::StopWorkers* proto) {
  proto->set_generation(stop.generation.value());
  proto->set_reason(CutText(stop.reason, kTextBytesMax));
}

void Write(const HungWorkers& order, v1::HungWorkers* proto) {
  proto->set_generation(order.generation.value());
  proto->set_reason(CutText(order.reason, kTextBytesMax));
  for (const uint32_t local_rank : order.local_ranks) proto->add_local_ranks(local_rank);
  proto->set_end(order.end);
}

void Write(const PrepareStop& prepare, v1::PrepareStop* proto) {
  proto->set_generation(prepare.generation.value());
  proto->set_round(prepare.round);
  proto->set_step(prepare.step);
}

void Write(const CommitStop& commit, v1::CommitStop* proto) {
  proto->set_generation(commit.generation.value());
  proto->set_step(commit.step);
  proto->set_within_ms(std::max<uint32_t>(ToMilliseconds(commit.within), 1));
  proto->set_reason(CutText(commit.reason, kTextBytesMax));
}

void WriteGpus(const std::vector<GpuUse>& gpus,
               google::protobuf::RepeatedPtrField<v1::GpuStatus>* protos) {
  for (size_t i = 0; i < std::min(gpus.size(), kGpusMax); ++i) {
    v1::GpuStatus* proto = protos->Add();
    proto->set_index(gpus[i].index);
    if (gpus[i].utilization.has_value()) proto->set_utilization_percent(*gpus[i].utilization);
    proto->set_memory_used_bytes(gpus[i].memory_used);
    proto->set_memory_total_bytes(gpus[i].memory_total);
    proto->set_lost(gpus[i].lost);
  }
}

void Write(const WarmUse& warm, v1::WarmStatus* proto) {
  proto->set_warm_workers(warm.warm_workers);
  proto->set_cold_workers(warm.cold_workers);
  proto->set_saved_ms(ToMillisecondsOrZero(warm.saved));
  proto->set_parked_bytes(warm.parked_bytes);
  proto->set_why_cold(CutText(warm.why_cold, kNameBytesMax));
}

uint64_t MillisecondsOf(absl::Duration duration) {
  return static_cast<uint64_t>(absl::ToInt64Milliseconds(std::max(duration, absl::ZeroDuration())));
}

void Write(const Renewal& renewal, v1::Renewal* proto) {
  proto->set_nonce(renewal.nonce);
  proto->mutable_progress()->Assign(renewal.progress.begin(), renewal.progress.end());
  proto->set_step_us(BoundedMicroseconds(renewal.step_time));
  if (renewal.time.has_value()) Write(*renewal.time, proto->mutable_time());
  WriteGpus(renewal.gpus, proto->mutable_gpus());
  if (renewal.warm.has_value()) Write(*renewal.warm, proto->mutable_warm());
  proto->set_can_rejoin(renewal.can_rejoin);
  for (const auto& [local_rank, hold_up] : renewal.hold_ups) {
    if (proto->hold_ups_size() == static_cast<int>(kHoldUpsMax)) break;
    v1::HoldUp& told = *proto->add_hold_ups();
    told.set_local_rank(local_rank);
    told.set_lasted_ms(ToMillisecondsOrZero(hold_up.lasted));
    told.set_why(CutText(hold_up.why, kNameBytesMax));
  }
}

void WriteWorkers(const NodeView& node, v1::NodeStatus* proto) {
  for (size_t i = 0; i < node.progress.size(); ++i) {
    v1::WorkerStatus* worker = proto->add_workers();
    worker->set_rank(node.base_rank + static_cast<uint32_t>(i));
    worker->set_phase(ProgressPhaseName(ProgressPhaseOf(node.progress[i])));
    worker->set_step(ProgressStepOf(node.progress[i]));
    const auto hold_up = node.hold_ups.find(static_cast<uint32_t>(i));
    if (hold_up == node.hold_ups.end()) continue;
    worker->mutable_hold_up()->set_lasted_ms(
        ToMillisecondsOrZero(hold_up->second.lasted + node.progress_age));
    worker->mutable_hold_up()->set_why(hold_up->second.why);
    worker->mutable_hold_up()->set_local_rank(hold_up->first);
  }
  if (node.progress.empty()) return;
  proto->set_progress_age_ms(MillisecondsOf(node.progress_age));
  proto->set_step_us(BoundedMicroseconds(node.step_time));
}

void Write(const NodeView& node, v1::NodeStatus* proto) {
  proto->set_node_id(ValidUtf8(node.node_id.value()));
  proto->set_hostname(CutText(node.info.hostname, kNameBytesMax));
  proto->set_state(node.state);
  if (node.group_rank.has_value()) proto->set_group_rank(*node.group_rank);
  proto->set_worker_count(node.info.worker_count);
  proto->set_silent_ms(MillisecondsOf(node.silent));
  proto->set_address(CutText(node.info.address, kNameBytesMax));
  proto->set_guards(CutText(node.info.guards, kNameBytesMax));
  proto->set_release(CutText(node.info.release, kNameBytesMax));
  proto->set_agent_address(CutText(node.info.store_address, kNameBytesMax));
  WriteWorkers(node, proto);
  WriteGpus(node.gpus, proto->mutable_gpus());
  if (!node.gpus.empty()) proto->set_gpus_age_ms(MillisecondsOf(node.gpus_age));
  if (node.warm.has_value()) Write(*node.warm, proto->mutable_warm());
}

void AddTimes(const TimeSpent& spent, google::protobuf::RepeatedPtrField<v1::TimeStatus>* times) {
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (spent.by[i] <= absl::ZeroDuration()) continue;
    v1::TimeStatus* time = times->Add();
    time->set_cause(TimeCauseName(static_cast<TimeCause>(i)));
    time->set_us(MicrosecondsOf(spent.by[i]));
  }
}

}  // namespace

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

v1::ServiceMessage ToProto(const ServiceMessage& message) {
  v1::ServiceMessage proto;
  std::visit(Overloaded{
                 [&](const Welcome& body) { Write(body, proto.mutable_welcome()); },
                 [&](const Probe& body) { Write(body, proto.mutable_probe()); },
                 [&](const Standby& body) { Write(body, proto.mutable_standby()); },
                 [&](const Assignment& body) { Write(body, proto.mutable_assignment()); },
                 [&](const StopWorkers& body) { Write(body, proto.mutable_stop_workers()); },
                 [&](const Verdict& body) { WriteVerdict(body, proto.mutable_verdict()); },
                 [&](const ReportProgress& body) {
                   proto.mutable_report_progress()->set_generation(body.generation.value());
                   proto.mutable_report_progress()->set_sample_ms(ToMilliseconds(body.sample));
                 },
                 [&](const HungWorkers& body) { Write(body, proto.mutable_hung_workers()); },
                 [&](const PrepareStop& body) { Write(body, proto.mutable_prepare_stop()); },
                 [&](const CommitStop& body) { Write(body, proto.mutable_commit_stop()); },
                 [&](const Drain& body) {
                   proto.mutable_drain()->set_reason(CutText(body.reason, kTextBytesMax));
                 },
                 [](const UnknownKind&) {},  // only received
             },
             message);
  return proto;
}

v1::GenerationStatus ToProto(const GenerationView& view, Instant now) {
  v1::GenerationStatus proto;
  proto.set_generation(view.generation.value());
  proto.set_world_size(view.world_size);
  proto.set_group_world_size(view.nodes);
  proto.set_reason(CutText(view.reason, kTextBytesMax));
  proto.set_rule(view.rule);
  proto.set_began_ms_ago(MillisecondsOf(now - view.began));
  if (!view.ended.is_infinite()) proto.set_ended_ms_ago(MillisecondsOf(now - view.ended));
  proto.set_end_reason(CutText(view.end_reason, kTextBytesMax));
  if (view.first_step) proto.set_first_step(*view.first_step);
  if (view.last_step) proto.set_last_step(*view.last_step);
  if (view.warm) {
    proto.mutable_warm()->set_warm_workers(view.warm->warm_workers);
    proto.mutable_warm()->set_cold_workers(view.warm->cold_workers);
    proto.mutable_warm()->set_saved_ms(ToMillisecondsOrZero(view.warm->saved));
  }
  return proto;
}

v1::JobStatus ToProto(const JobView& view) {
  v1::JobStatus proto;
  proto.set_run_id(ValidUtf8(view.spec.run_id));
  proto.set_description(CutText(view.spec.description, kTextBytesMax));
  proto.set_phase(view.phase);
  proto.set_reason(CutText(view.reason, kTextBytesMax));
  proto.set_generation(view.generation.value());
  proto.set_restart_count(view.restart_count);
  proto.set_restarts_charged(view.restarts_charged);
  proto.set_max_restarts(view.spec.max_restarts);
  proto.set_age_ms(MillisecondsOf(view.age));
  for (const NodeView& node : view.nodes) Write(node, proto.add_nodes());
  proto.set_nodes_total(static_cast<uint32_t>(view.nodes.size()));
  proto.set_recoveries(view.recoveries);
  proto.set_record(CutText(view.record, kTextBytesMax));
  proto.set_record_lost(CutText(view.record_lost, kTextBytesMax));
  AddTimes(view.spent, proto.mutable_ledger());
  if (view.counted) AddTimes(*view.counted, proto.mutable_counted());
  for (const DrainedNode& drained : view.drained) {
    v1::DrainedNode* entry = proto.add_drained();
    entry->set_node_id(ValidUtf8(drained.node_id.value()));
    entry->set_hostname(CutText(drained.hostname, kNameBytesMax));
    entry->set_address(CutText(drained.address, kNameBytesMax));
    entry->set_reason(CutText(drained.reason, kNameBytesMax));
  }
  return proto;
}

}  // namespace ddprun::rendezvous
