#ifndef DDPRUN_RENDEZVOUS_JOURNAL_RECORD_FIELDS_H_
#define DDPRUN_RENDEZVOUS_JOURNAL_RECORD_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "ddprun/rendezvous/v1/journal.pb.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/core/job_record.h"
#include "rendezvous/wire/field_checker.h"
#include "rendezvous/wire/fields.h"

namespace ddprun::rendezvous {

// FailureKind(): an exit code, a signal, and two texts.
inline constexpr size_t kFailureKindBytesMax = 2 * kTextBytesMax + 64;
// Bounds of lives and of generations: no job gets there, and one more can follow.
inline constexpr uint64_t kLivesMax = uint64_t{1} << 23;  // nonces have the number of a life
inline constexpr uint64_t kGenerationMax = uint64_t{1} << 56;

// The fields of a record's parts, for both directions (rendezvous/wire/fields.h). What a part must
// have in common with others is in record_from_proto.cc.

inline constexpr EnumTable<MemberRecord::Fate, v1::MemberFate, 3> kFates = {
    "fate",
    {{MemberRecord::Fate::kHere, v1::MEMBER_FATE_HERE},
     {MemberRecord::Fate::kLost, v1::MEMBER_FATE_LOST},
     {MemberRecord::Fate::kLeft, v1::MEMBER_FATE_LEFT}}};
static_assert(std::size(kFates.values) == v1::MemberFate_ARRAYSIZE);

inline constexpr EnumTable<FormingRecord::Cause, v1::FormingCause, 3> kFormingCauses = {
    "cause",
    {{FormingRecord::Cause::kFirst, v1::FORMING_CAUSE_FIRST},
     {FormingRecord::Cause::kFault, v1::FORMING_CAUSE_FAULT},
     {FormingRecord::Cause::kGrowth, v1::FORMING_CAUSE_GROWTH}}};
static_assert(std::size(kFormingCauses.values) == v1::FormingCause_ARRAYSIZE);

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, RestartHistory>& core,
            ProtoOf<Wire, v1::HistoryRecord>& proto) {
  const auto cut = [](absl::string_view bytes, size_t bytes_max) {
    return std::string(bytes.substr(0, bytes_max));
  };
  wire.Any(DDPRUN_FIELD(restart_count));
  wire.Number(DDPRUN_FIELD(restarts_charged), 0, core.restart_count);
  wire.Any(DDPRUN_FIELD(membership_changes));
  wire.Any(DDPRUN_FIELD(quick_failures));
  wire.Any(DDPRUN_FIELD(same_failures));
  wire.Text(DDPRUN_FIELD(last_failure), kFailureKindBytesMax, cut);
  wire.Any(DDPRUN_FIELD(without_progress));
  wire.OptionalStep(DDPRUN_FIELD(highest), proto.has_highest());
}

// Params: nodes_max: of the job; a writer doesn't need it.
template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, NodeRecord>& core, ProtoOf<Wire, v1::NodeRecord>& proto,
            uint32_t nodes_max = 0) {
  wire.Require(proto.has_info(), "info", "is missing");
  wire.Name(DDPRUN_FIELD(id));
  wire.NonZero(DDPRUN_FIELD(incarnation));
  if constexpr (Wire::kReads) {
    core.info = ReadNodeInfo(wire.checker(), wire.Path("info"), proto.info(), nodes_max);
  } else {
    WriteNodeInfo(core.info, proto.mutable_info());
  }
  wire.OptionalName(DDPRUN_FIELD_AS(info.release, release));
  wire.NonZero(DDPRUN_FIELD(stream_number));
  wire.Any(DDPRUN_FIELD(settled));
  wire.Any(DDPRUN_FIELD(draining));
  wire.Any(DDPRUN_FIELD(answered));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, MemberRecord>& core, ProtoOf<Wire, v1::MemberRecord>& proto) {
  wire.Optional(DDPRUN_FIELD(node), proto.has_node());
  wire.Name(DDPRUN_FIELD(node_id));
  wire.Number(DDPRUN_FIELD(worker_count), 1, kWorkersPerNodeMax);
  wire.Any(DDPRUN_FIELD(base_rank));
  wire.Number(DDPRUN_FIELD(role_world_size), 1, kWorkersMax);
  wire.Number(DDPRUN_FIELD(base_role_rank), 0, kWorkersMax);
  wire.Require(core.base_role_rank + uint64_t{core.worker_count} <= core.role_world_size,
               "role_world_size", core.role_world_size,
               " is below base_role_rank and worker_count");
  wire.Enum(DDPRUN_FIELD(fate), kFates);
  wire.Any(DDPRUN_FIELD(started));
  wire.Any(DDPRUN_FIELD(succeeded));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, ClosingRecord>& core, ProtoOf<Wire, v1::ClosingRecord>& proto) {
  wire.Nanoseconds(DDPRUN_FIELD_AS(age, age_ns));
  wire.Nanoseconds(DDPRUN_FIELD_AS(uptime, uptime_ns));
  wire.Text(DDPRUN_FIELD(reason));
  wire.Any(DDPRUN_FIELD(for_growth));
  wire.Text(DDPRUN_FIELD(loss));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, RoundTerms>& core, ProtoOf<Wire, v1::RoundRecord>& proto) {
  wire.Name(DDPRUN_FIELD(master_addr));
  wire.Port(DDPRUN_FIELD(master_port));
  wire.OptionalName(DDPRUN_FIELD(store_address));
  wire.Text(DDPRUN_FIELD(reason));
  wire.Rule(DDPRUN_FIELD(rule));
  wire.Any(DDPRUN_FIELD(restart_count));
  wire.Number(DDPRUN_FIELD(restarts_charged), 0, core.restart_count);
}

// Without what depends on the cause.
template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, FormingRecord>& core, ProtoOf<Wire, v1::FormingRecord>& proto) {
  wire.Enum(DDPRUN_FIELD(cause), kFormingCauses);
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, GrowthRecord>& core, ProtoOf<Wire, v1::GrowthRecord>& proto) {
  const bool grew = proto.has_members_before();
  wire.OptionalNumber(DDPRUN_FIELD(members_before), grew, 1, kNodesMax);
  wire.Number(DDPRUN_FIELD(wanted), grew ? 1 : 0, kNodesMax);
  wire.Any(DDPRUN_FIELD(fruitless));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, DrainedNode>& core, ProtoOf<Wire, v1::DrainRecord>& proto) {
  wire.Name(DDPRUN_FIELD(node_id));
  wire.OptionalName(DDPRUN_FIELD(hostname));
  wire.OptionalName(DDPRUN_FIELD(address));
  wire.Text(DDPRUN_FIELD(reason));
}

template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, WarmStart>& core, ProtoOf<Wire, v1::WarmStart>& proto) {
  wire.Number(DDPRUN_FIELD(warm_workers), 0, kWorkersMax);
  wire.Number(DDPRUN_FIELD(cold_workers), 0, kWorkersMax);
  if constexpr (Wire::kReads) {
    core.saved = absl::Milliseconds(proto.saved_ms());
  } else {
    proto.set_saved_ms(ToMillisecondsOrZero(core.saved));
  }
}

// Without how its workers started.
template <typename Wire>
void Fields(Wire wire, CoreOf<Wire, GenerationSummary>& core,
            ProtoOf<Wire, v1::GenerationSummary>& proto) {
  wire.Any(DDPRUN_FIELD(generation));
  wire.Number(DDPRUN_FIELD(world_size), 1, kWorkersMax);
  wire.Number(DDPRUN_FIELD(nodes), 1, kNodesMax);
  wire.Text(DDPRUN_FIELD(reason));
  wire.Rule(DDPRUN_FIELD(rule));
  wire.Nanoseconds(DDPRUN_FIELD_AS(age, age_ns));
  if constexpr (Wire::kReads) {
    if (proto.has_ended_ns()) {
      core.ended = wire.checker()->Nanoseconds(wire.Path("ended_ns"), proto.ended_ns());
    }
  } else if (core.ended.has_value()) {
    proto.set_ended_ns(absl::ToInt64Nanoseconds(*core.ended));
  }
  wire.Require(core.ended.value_or(absl::ZeroDuration()) <= core.age, "ended_ns", proto.ended_ns(),
               " is above age_ns, ", proto.age_ns());
  wire.Text(DDPRUN_FIELD(end_reason));
  wire.Require(proto.has_first_step() == proto.has_last_step(), "last_step",
               "or first_step is missing: they come together");
  wire.Require(proto.first_step() <= proto.last_step(), "first_step", proto.first_step(),
               " is above last_step, ", proto.last_step());
  wire.OptionalStep(DDPRUN_FIELD(first_step), proto.has_first_step());
  wire.OptionalStep(DDPRUN_FIELD(last_step), proto.has_last_step());
}

// The path of one entry: "nodes[3]".
inline std::string At(absl::string_view list, size_t index) {
  return absl::StrCat(list, "[", index, "]");
}

// Refuses a value that has occurred before.
template <typename Value>
void RequireFresh(FieldChecker* checker, absl::flat_hash_set<Value>* seen, const Value& value,
                  absl::string_view field) {
  checker->Require(seen->insert(value).second, field, absl::StrCat(value, " comes twice"));
}

// Reads the live generation. Params: nodes: those that its members refer to.
std::optional<RoundRecord> ReadRound(FieldChecker* checker, const v1::JobRecord& proto,
                                     const std::vector<NodeRecord>& nodes);

}  // namespace ddprun::rendezvous

#endif  // DDPRUN_RENDEZVOUS_JOURNAL_RECORD_FIELDS_H_
