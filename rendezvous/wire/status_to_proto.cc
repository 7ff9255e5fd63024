#include "base/progress_page.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/wire/convert.h"
#include "rendezvous/wire/convert_parts.h"
#include "rendezvous/wire/field_checker.h"

namespace ddprun::rendezvous {
namespace {

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
  proto->set_progress_age_ms(ToWholeMilliseconds(node.progress_age));
  proto->set_step_us(ToBoundedMicroseconds(node.step_time));
}

void Write(const NodeView& node, v1::NodeStatus* proto) {
  proto->set_node_id(ValidUtf8(node.node_id.value()));
  proto->set_hostname(CutText(node.info.hostname, kNameBytesMax));
  proto->set_state(node.state);
  if (node.group_rank.has_value()) proto->set_group_rank(*node.group_rank);
  proto->set_worker_count(node.info.worker_count);
  proto->set_silent_ms(ToWholeMilliseconds(node.silent));
  proto->set_address(CutText(node.info.address, kNameBytesMax));
  proto->set_guards(CutText(node.info.guards, kNameBytesMax));
  proto->set_release(CutText(node.info.release, kNameBytesMax));
  proto->set_agent_address(CutText(node.info.store_address, kNameBytesMax));
  WriteWorkers(node, proto);
  WriteGpus(node.gpus, proto->mutable_gpus());
  if (!node.gpus.empty()) proto->set_gpus_age_ms(ToWholeMilliseconds(node.gpus_age));
  if (node.warm.has_value()) WriteWarm(*node.warm, proto->mutable_warm());
  if (node.checkpoint_bytes) proto->set_checkpoint_bytes(*node.checkpoint_bytes);
}

void AddTimes(const TimeSpent& spent, google::protobuf::RepeatedPtrField<v1::TimeStatus>* times) {
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (spent.by[i] <= absl::ZeroDuration()) continue;
    v1::TimeStatus* time = times->Add();
    time->set_cause(TimeCauseName(static_cast<TimeCause>(i)));
    time->set_us(ToMicroseconds(spent.by[i]));
  }
}

}  // namespace

v1::GenerationStatus ToProto(const GenerationView& view, Instant now) {
  v1::GenerationStatus proto;
  proto.set_generation(view.generation.value());
  proto.set_world_size(view.world_size);
  proto.set_group_world_size(view.nodes);
  proto.set_reason(CutText(view.reason, kTextBytesMax));
  proto.set_rule(view.rule);
  proto.set_began_ms_ago(ToWholeMilliseconds(now - view.began));
  if (!view.ended.is_infinite()) proto.set_ended_ms_ago(ToWholeMilliseconds(now - view.ended));
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
  proto.set_age_ms(ToWholeMilliseconds(view.age));
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
