#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/journal/record_reader.h"
#include "rendezvous/wire/field_checker.h"

namespace ddprun::rendezvous {
namespace {

MemberRecord::Fate ReadFate(RecordReader* in, const std::string& field, int fate) {
  switch (fate) {
    case v1::MEMBER_FATE_HERE:
      return MemberRecord::Fate::kHere;
    case v1::MEMBER_FATE_LOST:
      return MemberRecord::Fate::kLost;
    case v1::MEMBER_FATE_LEFT:
      return MemberRecord::Fate::kLeft;
    default:  // open enumerations of proto3 take any number
      in->checker().Require(false, field, absl::StrCat(fate, " is no known fate"));
      return MemberRecord::Fate::kHere;
  }
}

MemberRecord ReadMember(RecordReader* in, const std::string& field, const v1::MemberRecord& proto) {
  FieldChecker& checker = in->checker();
  MemberRecord member;
  if (proto.has_node()) member.node = proto.node();
  member.node_id = NodeId(checker.Name(field + ".node_id", proto.node_id()));
  member.worker_count =
      checker.Number(field + ".worker_count", proto.worker_count(), 1, kWorkersPerNodeMax);
  member.base_rank = proto.base_rank();
  member.role_world_size =
      checker.Number(field + ".role_world_size", proto.role_world_size(), 1, kWorkersMax);
  member.base_role_rank =
      checker.Number(field + ".base_role_rank", proto.base_role_rank(), 0, kWorkersMax);
  checker.Require(
      proto.base_role_rank() + uint64_t{proto.worker_count()} <= proto.role_world_size(),
      field + ".role_world_size",
      absl::StrCat(proto.role_world_size(), " is below base_role_rank and worker_count"));
  member.fate = ReadFate(in, field + ".fate", proto.fate());
  member.started = proto.started();
  member.succeeded = proto.succeeded();
  return member;
}

// A member that is gone has no node; any other has one, or is done. In a closing generation no
// member is done.
void CheckFate(RecordReader* in, const std::string& field, const MemberRecord& member,
               bool closing) {
  const bool gone = member.fate != MemberRecord::Fate::kHere;
  in->checker().Require(!gone || closing, field + ".fate",
                        "is gone from a generation that nothing ends");
  in->checker().Require(!gone || !member.node, field + ".node", "is that of a member that is gone");
  in->checker().Require(gone || member.node || (member.succeeded && !closing), field + ".node",
                        "is missing, and the member is neither gone nor done");
}

// The round's nodes are those of the record, each once.
void CheckNode(RecordReader* in, const std::string& field, const MemberRecord& member,
               const std::vector<NodeRecord>& nodes, std::set<uint32_t>* seen) {
  if (!member.node) return;
  const uint32_t node = *member.node;
  in->checker().Require(node < nodes.size(), field + ".node",
                        absl::StrCat(node, " is not below the number of nodes, ", nodes.size()));
  if (!in->ok()) return;
  in->checker().Require(seen->insert(node).second, field + ".node",
                        absl::StrCat(node, " comes twice"));
  in->checker().Require(
      nodes[node].id == member.node_id, field + ".node",
      absl::StrCat(node, " is '", nodes[node].id.value(), "', not '", member.node_id.value(), "'"));
}

std::vector<MemberRecord> ReadMembers(RecordReader* in, const v1::JobRecord& proto,
                                      const std::vector<NodeRecord>& nodes) {
  std::vector<MemberRecord> members;
  const v1::RoundRecord& round = proto.round();
  const bool closing = round.has_closing();
  in->checker().Require(round.members_size() > 0, "round.members", "is empty");
  in->checker().Count("round.members", round.members_size(), proto.spec().nodes_max());
  uint32_t next_rank = 0;
  std::set<uint32_t> seen;
  for (const v1::MemberRecord& each : round.members()) {
    if (!in->ok()) break;
    const std::string field = At("round.members", members.size());
    const MemberRecord& member = members.emplace_back(ReadMember(in, field, each));
    in->checker().Require(
        member.base_rank == next_rank, field + ".base_rank",
        absl::StrCat(member.base_rank, " is not ", next_rank, ", the number of workers before"));
    next_rank += member.worker_count;
    CheckFate(in, field, member, closing);
    CheckNode(in, field, member, nodes, &seen);
  }
  return members;
}

ClosingRecord ReadClosing(RecordReader* in, const v1::ClosingRecord& proto, absl::Duration round) {
  ClosingRecord closing{.age = in->Time("round.closing.age_ns", proto.age_ns()),
                        .uptime = in->Time("round.closing.uptime_ns", proto.uptime_ns()),
                        .reason = in->checker().Text("round.closing.reason", proto.reason()),
                        .for_growth = proto.for_growth(),
                        .loss = in->checker().Text("round.closing.loss", proto.loss())};
  in->checker().Require(closing.age + closing.uptime <= round, "round.closing.uptime_ns",
                        absl::StrCat(proto.uptime_ns(), " and age_ns, ", proto.age_ns(),
                                     ", are more than the generation's age"));
  return closing;
}

}  // namespace

std::optional<RoundRecord> ReadRound(RecordReader* in, const v1::JobRecord& proto,
                                     const std::vector<NodeRecord>& nodes) {
  if (!proto.has_round()) return std::nullopt;
  const v1::RoundRecord& from = proto.round();
  FieldChecker& checker = in->checker();
  checker.Require(!proto.has_verdict(), "verdict", "is there beside a live generation");
  checker.Require(proto.generation() != 0, "round", "is there without a generation");
  RoundRecord round;
  round.age = in->Time("round.age_ns", from.age_ns());
  round.members = ReadMembers(in, proto, nodes);
  round.master_addr = checker.Name("round.master_addr", from.master_addr());
  round.master_port = checker.Port("round.master_port", from.master_port());
  round.store_address = checker.OptionalName("round.store_address", from.store_address());
  round.reason = checker.Text("round.reason", from.reason());
  round.rule = in->RuleOf("round.rule", from.rule());
  round.restart_count = from.restart_count();
  round.restarts_charged =
      checker.Number("round.restarts_charged", from.restarts_charged(), 0, from.restart_count());
  if (from.has_closing()) round.closing = ReadClosing(in, from.closing(), round.age);
  return round;
}

}  // namespace ddprun::rendezvous
