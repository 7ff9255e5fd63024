#include <cstdint>

#include "rendezvous/core/bounds.h"
#include "rendezvous/journal/record_fields.h"
#include "rendezvous/journal/record_proto.h"
#include "rendezvous/wire/convert_parts.h"
#include "rendezvous/wire/field_checker.h"

namespace ddprun::rendezvous {
namespace {

std::string Name(const NodeId& id) { return ValidUtf8(id.value()); }
std::string Name(const std::string& name) { return ValidUtf8(name); }
std::string Text(const std::string& text) { return CutText(text, kTextBytesMax); }

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

void Write(const RoundRecord& round, v1::RoundRecord* proto) {
  proto->set_age_ns(absl::ToInt64Nanoseconds(round.age));
  for (const MemberRecord& member : round.members) Write(member, proto->add_members());
  Fields(FieldWriter(), round.terms, *proto);
  if (round.closing.has_value()) Write(*round.closing, proto->mutable_closing());
}

void Write(const FormingRecord& forming, v1::FormingRecord* proto) {
  Fields(FieldWriter(), forming, *proto);
  proto->set_pause_ns(absl::ToInt64Nanoseconds(forming.pause));
  proto->set_why(Text(forming.why));
  proto->set_rule(Name(forming.rule));
  for (const NodeId& id : forming.previous_ranks) proto->add_previous_ranks(Name(id));
}

void Write(const BlameRecord& blame, v1::BlameRecord* proto) {
  proto->set_node(Name(blame.node));
  proto->set_hostname(Name(blame.hostname));
  for (const absl::Duration age : blame.ages) proto->add_age_ns(absl::ToInt64Nanoseconds(age));
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
  for (const DrainedNode& drain : record.drained) Write(drain, proto.add_drained());
  for (const GenerationSummary& each : record.generations) {
    v1::GenerationSummary* summary = proto.add_generations();
    Write(each, summary);
    if (each.warm.has_value()) Write(*each.warm, summary->mutable_warm());
  }
  Write(record.ledger, proto.mutable_ledger());
  return proto;
}

}  // namespace ddprun::rendezvous
