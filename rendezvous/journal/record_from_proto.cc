#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/journal/record_fields.h"
#include "rendezvous/journal/record_proto.h"
#include "rendezvous/wire/convert_parts.h"
#include "rendezvous/wire/field_checker.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint32_t kStatusCodeMax = 16;  // UNAUTHENTICATED

std::vector<NodeRecord> ReadNodes(FieldChecker* checker, const v1::JobRecord& proto) {
  std::vector<NodeRecord> nodes;
  checker->Count("nodes", proto.nodes_size(), kNodesMax);
  absl::flat_hash_set<std::string> ids;
  absl::flat_hash_set<uint64_t> incarnations;
  for (const v1::NodeRecord& node : proto.nodes()) {
    if (!checker->ok()) break;
    const std::string field = At("nodes", nodes.size());
    Fields(FieldReader(checker, field), nodes.emplace_back(), node, proto.spec().nodes_max());
    RequireFresh(checker, &ids, nodes.back().id.value(), field + ".id");
    RequireFresh(checker, &incarnations, node.incarnation(), field + ".incarnation");
  }
  return nodes;
}

DepartedRecord ReadDeparted(FieldChecker* checker, const std::string& field,
                            const v1::DepartedRecord& proto, uint64_t generation) {
  DepartedRecord departed;
  departed.incarnation = Incarnation(checker->NonZero(field + ".incarnation", proto.incarnation()));
  departed.id = NodeId(checker->Name(field + ".id", proto.id()));
  departed.stream_number =
      StreamNumber(checker->NonZero(field + ".stream_number", proto.stream_number()));
  departed.processed = proto.processed();
  const uint32_t code =
      checker->Number(field + ".refusal_code", proto.refusal_code(), 0, kStatusCodeMax);
  const std::string message = checker->Text(field + ".refusal_message", proto.refusal_message());
  checker->Require(code != 0 || message.empty(), field + ".refusal_message",
                   "is there without a code");
  departed.refusal = absl::Status(static_cast<absl::StatusCode>(code), message);
  departed.left = proto.left();
  departed.done_in = Generation(proto.done_in());
  checker->Require(proto.done_in() <= generation, field + ".done_in",
                   absl::StrCat(proto.done_in(), " is above the generation, ", generation));
  checker->Require(
      proto.has_done_rank() == (proto.done_in() != 0), field + ".done_rank",
      proto.has_done_rank() ? "is there without done_in" : "is missing beside done_in");
  if (proto.has_done_rank()) {
    departed.done_rank = checker->Number(field + ".done_rank", proto.done_rank(), 0, kNodesMax - 1);
  }
  return departed;
}

std::vector<DepartedRecord> ReadAllDeparted(FieldChecker* checker, const v1::JobRecord& proto) {
  std::vector<DepartedRecord> all;
  checker->Count("departed", proto.departed_size(), kNodesMax);
  absl::flat_hash_set<uint64_t> incarnations;
  for (const v1::DepartedRecord& departed : proto.departed()) {
    if (!checker->ok()) break;
    const std::string field = At("departed", all.size());
    all.push_back(ReadDeparted(checker, field, departed, proto.generation()));
    RequireFresh(checker, &incarnations, departed.incarnation(), field + ".incarnation");
  }
  return all;
}

// Before the first generation there is no last one to remember.
void CheckFirst(FieldChecker* checker, const v1::FormingRecord& proto) {
  checker->Require(proto.pause_ns() == 0, "forming.pause_ns",
                   absl::StrCat(proto.pause_ns(), " is a pause before the first generation"));
  checker->Require(proto.previous_ranks().empty(), "forming.previous_ranks",
                   "are there before the first generation");
  checker->Require(proto.rule().empty(), "forming.rule", "is there before the first one");
}

FormingRecord ReadForming(FieldChecker* checker, const v1::JobRecord& job) {
  const v1::FormingRecord& proto = job.forming();
  FormingRecord forming = Read<FormingRecord>(checker, "forming", proto);
  const bool first = forming.cause == FormingRecord::Cause::kFirst;
  const bool waits = !job.has_round() && !job.has_verdict();
  checker->Require(first || job.generation() != 0, "forming.cause",
                   "is the end of a generation, and there was none");
  checker->Require(!first || !waits || job.generation() == 0, "forming.cause",
                   "is the first generation, which is over");
  if (first) CheckFirst(checker, proto);
  forming.pause = checker->Nanoseconds("forming.pause_ns", proto.pause_ns());
  checker->Require(forming.pause <= kTimeoutMax, "forming.pause_ns",
                   absl::StrCat(proto.pause_ns(), " is above a week"));
  forming.why = checker->Text("forming.why", proto.why());
  if (!first) forming.rule = checker->Rule("forming.rule", proto.rule());
  checker->Count("forming.previous_ranks", proto.previous_ranks_size(), kNodesMax);
  absl::flat_hash_set<std::string> seen;
  for (const std::string& id : proto.previous_ranks()) {
    if (!checker->ok()) break;
    const std::string field = At("forming.previous_ranks", forming.previous_ranks.size());
    forming.previous_ranks.emplace_back(checker->Name(field, id));
    RequireFresh(checker, &seen, id, field);
  }
  return forming;
}

BlameRecord ReadBlame(FieldChecker* checker, const std::string& field, const v1::BlameRecord& proto,
                      uint32_t most) {
  BlameRecord blame{.node = NodeId(checker->Name(field + ".node", proto.node())),
                    .hostname = checker->OptionalName(field + ".hostname", proto.hostname()),
                    .ages = {}};
  checker->Require(proto.age_ns_size() > 0, field + ".age_ns", "is empty");
  checker->Count(field + ".age_ns", proto.age_ns_size(), most);
  for (const int64_t ns : proto.age_ns()) {
    if (!checker->ok()) break;
    const absl::Duration age = checker->Nanoseconds(field + ".age_ns", ns);
    checker->Require(blame.ages.empty() || age <= blame.ages.back(), field + ".age_ns",
                     absl::StrCat(ns, " is older than the one before"));
    blame.ages.push_back(age);
  }
  return blame;
}

std::vector<BlameRecord> ReadAllBlame(FieldChecker* checker, const v1::JobRecord& proto,
                                      uint32_t quarantine_after) {
  std::vector<BlameRecord> all;
  // The list has no bound of its own: at most one failure counts for each restart.
  absl::flat_hash_set<std::string> seen;
  for (const v1::BlameRecord& blame : proto.blame()) {
    if (!checker->ok()) break;
    const std::string field = At("blame", all.size());
    all.push_back(ReadBlame(checker, field, blame, quarantine_after));
    RequireFresh(checker, &seen, blame.node(), field + ".node");
  }
  return all;
}

std::vector<DrainedNode> ReadDrained(FieldChecker* checker, const v1::JobRecord& proto) {
  std::vector<DrainedNode> all;
  checker->Count("drained", proto.drained_size(), kDrainedMax);
  for (const v1::DrainRecord& drain : proto.drained()) {
    if (!checker->ok()) break;
    all.push_back(Read<DrainedNode>(checker, At("drained", all.size()), drain));
  }
  return all;
}

WarmStart ReadWarm(FieldChecker* checker, const std::string& field, const v1::WarmStart& proto) {
  checker->Require(proto.warm_workers() + uint64_t{proto.cold_workers()} > 0, field,
                   "is of nobody");
  return Read<WarmStart>(checker, field, proto);
}

// The numbers are contiguous up to the job's generation; all but the live one have ended.
std::vector<GenerationSummary> ReadGenerations(FieldChecker* checker, const v1::JobRecord& proto) {
  std::vector<GenerationSummary> all;
  const int count = proto.generations_size();
  checker->Count("generations", count, kGenerationsRecordedMax);
  checker->Require((count > 0) == (proto.generation() > 0), "generations",
                   absl::StrCat("are ", count, ", and the last is ", proto.generation()));
  checker->Require(static_cast<uint64_t>(count) <= proto.generation(), "generations",
                   absl::StrCat("are ", count, ", more than there were"));
  const bool live = proto.has_round() && !proto.round().has_closing();
  for (const v1::GenerationSummary& each : proto.generations()) {
    if (!checker->ok()) break;
    const std::string field = At("generations", all.size());
    const uint64_t number = proto.generation() - static_cast<uint64_t>(count) + all.size() + 1;
    all.push_back(Read<GenerationSummary>(checker, field, each));
    if (each.has_warm()) all.back().warm = ReadWarm(checker, field + ".warm", each.warm());
    checker->Require(each.generation() == number, field + ".generation",
                     absl::StrCat(each.generation(), " is not ", number));
    const bool lives = live && number == proto.generation();
    checker->Require(each.has_ended_ns() != lives, field + ".ended_ns",
                     lives ? "is there, and the generation lives" : "is missing");
  }
  return all;
}

LedgerRecord ReadLedger(FieldChecker* checker, const v1::JobRecord& job,
                        const std::optional<RoundRecord>& round) {
  const v1::LedgerRecord& proto = job.ledger();
  LedgerRecord ledger;
  ledger.age = checker->Nanoseconds("ledger.age_ns", proto.age_ns());
  ledger.first = proto.first();
  ledger.marks = proto.marks();
  checker->Count("ledger.booked", proto.booked_size(), kTimeCauses);
  std::set<int> seen;
  for (const v1::BookedTime& time : proto.booked()) {
    if (!checker->ok()) break;
    const int cause = time.cause();
    checker->Require(cause >= v1::TIME_CAUSE_RENDEZVOUS && cause <= v1::TIME_CAUSE_OTHER,
                     "ledger.booked.cause", absl::StrCat(cause, " is no known cause"));
    checker->Require(seen.insert(cause).second, "ledger.booked.cause",
                     absl::StrCat(cause, " comes twice"));
    ledger.booked[ReadTimeCause(cause)] = checker->Nanoseconds("ledger.booked.ns", time.ns());
  }
  const absl::Duration booked = ledger.booked.Total();
  const absl::Duration live = round ? round->age : absl::ZeroDuration();
  checker->Require(round ? booked + live == ledger.age : booked <= ledger.age, "ledger.booked",
                   absl::StrCat("sums up to ", absl::ToInt64Nanoseconds(booked), " ns, beside ",
                                absl::ToInt64Nanoseconds(live),
                                " of the live generation, of an age of ", proto.age_ns()));
  return ledger;
}

std::optional<Verdict> ReadVerdictOf(FieldChecker* checker, const v1::JobRecord& proto) {
  if (!proto.has_verdict()) return std::nullopt;
  Verdict verdict = ReadVerdict(checker, "verdict", proto.verdict());
  verdict.rule = checker->Rule("verdict.rule", proto.verdict().rule());
  checker->Require(
      proto.verdict().generation() <= proto.generation(), "verdict.generation",
      absl::StrCat(proto.verdict().generation(), " is above the job's, ", proto.generation()));
  return verdict;
}

std::optional<JobSpec> ReadSpec(FieldChecker* checker, const v1::JobRecord& proto) {
  if (proto.has_spec()) {
    const std::string run_id = checker->Name("run_id", proto.run_id());
    return ReadJobSpec(checker, "spec", run_id, proto.spec());
  }
  const bool any = !proto.run_id().empty() || proto.nodes_size() > 0 || proto.generation() != 0 ||
                   proto.departed_size() > 0 || proto.blame_size() > 0 || proto.has_round() ||
                   proto.ledger().age_ns() != 0;
  checker->Require(!any, "spec", "is missing, and somebody has joined");
  return std::nullopt;
}

}  // namespace

absl::StatusOr<JobRecord> FromProto(const v1::JobRecord& proto) {
  FieldChecker checker;
  JobRecord record;
  record.term = Term(checker.NonZero("term", proto.term()));
  record.life = proto.life();
  checker.Require(record.life <= kLivesMax, "life", absl::StrCat(record.life, " is above 2^23"));
  record.spec = ReadSpec(&checker, proto);
  record.generation = Generation(proto.generation());
  checker.Require(proto.generation() <= kGenerationMax, "generation",
                  absl::StrCat(proto.generation(), " is above 2^56"));
  record.reason = checker.Text("reason", proto.reason());
  record.begun_step = checker.Step("begun_step", proto.begun_step());
  record.history = Read<RestartHistory>(&checker, "history", proto.history());
  record.taken = checker.Text("taken", proto.taken());
  record.takes_service = proto.takes_service();
  record.nodes = ReadNodes(&checker, proto);
  record.departed = ReadAllDeparted(&checker, proto);
  record.round = ReadRound(&checker, proto, record.nodes);
  record.verdict = ReadVerdictOf(&checker, proto);
  record.forming = ReadForming(&checker, proto);
  record.growth = Read<GrowthRecord>(&checker, "growth", proto.growth());
  record.blame =
      ReadAllBlame(&checker, proto, record.spec.value_or(JobSpec()).restart.quarantine_after);
  record.drained = ReadDrained(&checker, proto);
  record.generations = ReadGenerations(&checker, proto);
  record.ledger = ReadLedger(&checker, proto, record.round);
  if (!checker.ok()) return checker.status();
  return record;
}

}  // namespace ddprun::rendezvous
