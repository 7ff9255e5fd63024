#include <cstdint>
#include <set>
#include <string>

#include "absl/strings/str_cat.h"
#include "rendezvous/journal/record_fields.h"
#include "rendezvous/wire/field_checker.h"

namespace ddprun::rendezvous {
namespace {

// A member that is gone has no node; any other has one, or is done. In a closing generation no
// member is done.
void CheckFate(FieldChecker* checker, const std::string& field, const MemberRecord& member,
               bool closing) {
  const bool gone = member.fate != MemberRecord::Fate::kHere;
  checker->Require(!gone || closing, field + ".fate",
                   "is gone from a generation that nothing ends");
  checker->Require(!gone || !member.node, field + ".node", "is that of a member that is gone");
  checker->Require(gone || member.node || (member.succeeded && !closing), field + ".node",
                   "is missing, and the member is neither gone nor done");
}

// The round's nodes are those of the record, each once.
void CheckNode(FieldChecker* checker, const std::string& field, const MemberRecord& member,
               const std::vector<NodeRecord>& nodes, std::set<uint32_t>* seen) {
  if (!member.node) return;
  const uint32_t node = *member.node;
  checker->Require(node < nodes.size(), field + ".node",
                   absl::StrCat(node, " is not below the number of nodes, ", nodes.size()));
  if (!checker->ok()) return;
  checker->Require(seen->insert(node).second, field + ".node", absl::StrCat(node, " comes twice"));
  checker->Require(
      nodes[node].id == member.node_id, field + ".node",
      absl::StrCat(node, " is '", nodes[node].id.value(), "', not '", member.node_id.value(), "'"));
}

std::vector<MemberRecord> ReadMembers(FieldChecker* checker, const v1::JobRecord& proto,
                                      const std::vector<NodeRecord>& nodes) {
  std::vector<MemberRecord> members;
  const v1::RoundRecord& round = proto.round();
  const bool closing = round.has_closing();
  checker->Require(round.members_size() > 0, "round.members", "is empty");
  checker->Count("round.members", round.members_size(), proto.spec().nodes_max());
  uint32_t next_rank = 0;
  std::set<uint32_t> seen;
  for (const v1::MemberRecord& each : round.members()) {
    if (!checker->ok()) break;
    const std::string field = At("round.members", members.size());
    const MemberRecord& member = members.emplace_back(Read<MemberRecord>(checker, field, each));
    checker->Require(
        member.base_rank == next_rank, field + ".base_rank",
        absl::StrCat(member.base_rank, " is not ", next_rank, ", the number of workers before"));
    next_rank += member.worker_count;
    CheckFate(checker, field, member, closing);
    CheckNode(checker, field, member, nodes, &seen);
  }
  return members;
}

}  // namespace

std::optional<RoundRecord> ReadRound(FieldChecker* checker, const v1::JobRecord& proto,
                                     const std::vector<NodeRecord>& nodes) {
  if (!proto.has_round()) return std::nullopt;
  const v1::RoundRecord& from = proto.round();
  checker->Require(!proto.has_verdict(), "verdict", "is there beside a live generation");
  checker->Require(proto.generation() != 0, "round", "is there without a generation");
  RoundRecord round;
  round.age = checker->Nanoseconds("round.age_ns", from.age_ns());
  round.members = ReadMembers(checker, proto, nodes);
  Fields(FieldReader(checker, "round"), round.terms, from);
  if (!from.has_closing()) return round;
  const auto& closing = round.closing =
      Read<ClosingRecord>(checker, "round.closing", from.closing());
  checker->Require(closing->age + closing->uptime <= round.age, "round.closing.uptime_ns",
                   absl::StrCat(from.closing().uptime_ns(), " and age_ns, ",
                                from.closing().age_ns(), ", are more than the generation's age"));
  return round;
}

}  // namespace ddprun::rendezvous
