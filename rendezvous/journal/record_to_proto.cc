#include <cstdint>

#include "rendezvous/core/bounds.h"
#include "rendezvous/journal/record_bounds.h"
#include "rendezvous/journal/record_proto.h"
#include "rendezvous/wire/convert_parts.h"
#include "rendezvous/wire/text.h"

namespace ddprun::rendezvous {
namespace {

std::string Name(const NodeId& id) { return ValidUtf8(id.value()); }
std::string Name(const std::string& name) { return ValidUtf8(name); }
std::string Text(const std::string& text) { return CutText(text, kTextBytesMax); }

void Write(const RestartHistory& history, v1::HistoryRecord* proto) {
  proto->set_restart_count(history.restart_count);
  proto->set_restarts_charged(history.restarts_charged);
  proto->set_membership_changes(history.membership_changes);
  proto->set_quick_failures(history.quick_failures);
  proto->set_same_failures(history.same_failures);
  proto->set_last_failure(history.last_failure.substr(0, kFailureKindBytesMax));
  proto->set_without_progress(history.without_progress);
  if (history.highest.has_value()) proto->set_highest(*history.highest);
}

void Write(const NodeRecord& node, v1::NodeRecord* proto) {
  proto->set_id(Name(node.id));
  proto->set_incarnation(node.incarnation.value());
  WriteNodeInfo(node.info, proto->mutable_info());
  proto->set_stream_number(node.stream_number.value());
  proto->set_settled(node.settled);
  proto->set_draining(node.draining);
  proto->set_answered(node.answered);
  proto->set_release(Text(node.info.release));
}

void Write(const DepartedRecord& departed, v1::DepartedRecord* proto) {
  proto->set_incarnation(departed.incarnation.value());
  proto->set_id(Name(departed.id));
  proto->set_stream_number(departed.stream_number.value());
  proto->set_processed(departed.processed);
  proto->set_refusal_code(static_cast<uint32_t>(departed.refusal.code()));
  proto->set_refusal_message(Text(std::string(departed.refusal.message())));
  proto->set_left(departed.left);
  proto->set_done_in(departed.done_in.value());
  if (departed.done_rank.has_value()) proto->set_done_rank(*departed.done_rank);
}

v1::MemberFate ToProto(MemberRecord::Fate fate) {
  switch (fate) {
    case MemberRecord::Fate::kHere:
      return v1::MEMBER_FATE_HERE;
    case MemberRecord::Fate::kLost:
      return v1::MEMBER_FATE_LOST;
    case MemberRecord::Fate::kLeft:
      return v1::MEMBER_FATE_LEFT;
  }
  return v1::MEMBER_FATE_HERE;
}

void Write(const MemberRecord& member, v1::MemberRecord* proto) {
  if (member.node.has_value()) proto->set_node(*member.node);
  proto->set_node_id(Name(member.node_id));
  proto->set_worker_count(member.worker_count);
  proto->set_base_rank(member.base_rank);
  proto->set_base_role_rank(member.base_role_rank);
  proto->set_role_world_size(member.role_world_size);
  proto->set_fate(ToProto(member.fate));
  proto->set_started(member.started);
  proto->set_succeeded(member.succeeded);
}

void Write(const ClosingRecord& closing, v1::ClosingRecord* proto) {
  proto->set_age_ns(absl::ToInt64Nanoseconds(closing.age));
  proto->set_uptime_ns(absl::ToInt64Nanoseconds(closing.uptime));
  proto->set_reason(Text(closing.reason));
  proto->set_for_growth(closing.for_growth);
  proto->set_loss(Text(closing.loss));
}

void Write(const RoundRecord& round, v1::RoundRecord* proto) {
  proto->set_age_ns(absl::ToInt64Nanoseconds(round.age));
  for (const MemberRecord& member : round.members) Write(member, proto->add_members());
  proto->set_master_addr(Name(round.master_addr));
  proto->set_master_port(round.master_port);
  proto->set_store_address(Name(round.store_address));
  proto->set_reason(Text(round.reason));
  proto->set_rule(Name(round.rule));
  proto->set_restart_count(round.restart_count);
  proto->set_restarts_charged(round.restarts_charged);
  if (round.closing.has_value()) Write(*round.closing, proto->mutable_closing());
}

v1::FormingCause ToProto(FormingRecord::Cause cause) {
  switch (cause) {
    case FormingRecord::Cause::kFirst:
      return v1::FORMING_CAUSE_FIRST;
    case FormingRecord::Cause::kFault:
      return v1::FORMING_CAUSE_FAULT;
    case FormingRecord::Cause::kGrowth:
      return v1::FORMING_CAUSE_GROWTH;
  }
  return v1::FORMING_CAUSE_FIRST;
}

void Write(const FormingRecord& forming, v1::FormingRecord* proto) {
  proto->set_cause(ToProto(forming.cause));
  proto->set_pause_ns(absl::ToInt64Nanoseconds(forming.pause));
  proto->set_why(Text(forming.why));
  proto->set_rule(Name(forming.rule));
  for (const NodeId& id : forming.previous_ranks) proto->add_previous_ranks(Name(id));
}

void Write(const GrowthRecord& growth, v1::GrowthRecord* proto) {
  if (growth.members_before.has_value()) proto->set_members_before(*growth.members_before);
  proto->set_wanted(growth.wanted);
  proto->set_fruitless(growth.fruitless);
}

void Write(const BlameRecord& blame, v1::BlameRecord* proto) {
  proto->set_node(Name(blame.node));
  proto->set_hostname(Name(blame.hostname));
  for (const absl::Duration age : blame.ages) proto->add_age_ns(absl::ToInt64Nanoseconds(age));
}

void Write(const DrainRecord& drain, v1::DrainRecord* proto) {
  proto->set_node_id(Name(drain.node_id));
  proto->set_hostname(Name(drain.hostname));
  proto->set_address(Name(drain.address));
  proto->set_reason(Text(drain.reason));
}

void Write(const GenerationSummary& summary, v1::GenerationSummary* proto) {
  proto->set_generation(summary.generation.value());
  proto->set_world_size(summary.world_size);
  proto->set_nodes(summary.nodes);
  proto->set_reason(Text(summary.reason));
  proto->set_rule(Name(summary.rule));
  proto->set_age_ns(absl::ToInt64Nanoseconds(summary.age));
  if (summary.ended.has_value()) proto->set_ended_ns(absl::ToInt64Nanoseconds(*summary.ended));
  proto->set_end_reason(Text(summary.end_reason));
  if (summary.first_step.has_value()) proto->set_first_step(*summary.first_step);
  if (summary.last_step.has_value()) proto->set_last_step(*summary.last_step);
  if (!summary.warm.has_value()) return;
  proto->mutable_warm()->set_warm_workers(summary.warm->warm_workers);
  proto->mutable_warm()->set_cold_workers(summary.warm->cold_workers);
  proto->mutable_warm()->set_saved_ms(ToMillisecondsOrZero(summary.warm->saved));
}

void Write(const LedgerRecord& ledger, v1::LedgerRecord* proto) {
  proto->set_age_ns(absl::ToInt64Nanoseconds(ledger.age));
  for (size_t i = 0; i < kTimeCauses; ++i) {
    if (ledger.booked.by[i] == absl::ZeroDuration()) continue;
    v1::BookedTime* time = proto->add_booked();
    time->set_cause(WriteTimeCause(static_cast<TimeCause>(i)));
    time->set_ns(absl::ToInt64Nanoseconds(ledger.booked.by[i]));
  }
  proto->set_first(ledger.first);
  proto->set_marks(ledger.marks);
}

}  // namespace

v1::JobRecord ToProto(const JobRecord& record) {
  v1::JobRecord proto;
  proto.set_term(record.term.value());
  proto.set_life(record.life);
  if (record.spec.has_value()) {
    proto.set_run_id(ValidUtf8(record.spec->run_id));
    WriteJobSpec(*record.spec, proto.mutable_spec());
  }
  proto.set_generation(record.generation.value());
  proto.set_reason(Text(record.reason));
  proto.set_begun_step(record.begun_step);
  Write(record.history, proto.mutable_history());
  proto.set_taken(Text(record.taken));
  proto.set_takes_service(record.takes_service);
  for (const NodeRecord& node : record.nodes) Write(node, proto.add_nodes());
  for (const DepartedRecord& departed : record.departed) Write(departed, proto.add_departed());
  if (record.round.has_value()) Write(*record.round, proto.mutable_round());
  if (record.verdict.has_value()) WriteVerdict(*record.verdict, proto.mutable_verdict());
  Write(record.forming, proto.mutable_forming());
  Write(record.growth, proto.mutable_growth());
  for (const BlameRecord& blame : record.blame) Write(blame, proto.add_blame());
  for (const DrainRecord& drain : record.drained) Write(drain, proto.add_drained());
  for (const GenerationSummary& each : record.generations) Write(each, proto.add_generations());
  Write(record.ledger, proto.mutable_ledger());
  return proto;
}

}  // namespace ddprun::rendezvous
