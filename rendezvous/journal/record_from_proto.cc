#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"
#include "rendezvous/journal/record_bounds.h"
#include "rendezvous/journal/record_proto.h"
#include "rendezvous/journal/record_reader.h"
#include "rendezvous/wire/convert_parts.h"
#include "rendezvous/wire/field_checker.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint32_t kStatusCodeMax = 16;  // UNAUTHENTICATED

RestartHistory ReadHistory(RecordReader* in, const v1::HistoryRecord& proto) {
  RestartHistory history;
  history.restart_count = proto.restart_count();
  history.restarts_charged = in->checker().Number(
      "history.restarts_charged", proto.restarts_charged(), 0, proto.restart_count());
  history.membership_changes = proto.membership_changes();
  history.quick_failures = proto.quick_failures();
  history.same_failures = proto.same_failures();
  history.last_failure =
      in->checker().Text("history.last_failure", proto.last_failure(), kFailureKindBytesMax);
  history.without_progress = proto.without_progress();
  if (proto.has_highest()) history.highest = in->Step("history.highest", proto.highest());
  return history;
}

NodeRecord ReadNode(RecordReader* in, const std::string& field, const v1::NodeRecord& proto,
                    uint32_t nodes_max) {
  FieldChecker& checker = in->checker();
  checker.Present(field + ".info", proto.has_info());
  NodeInfo info = ReadNodeInfo(&checker, field + ".info", proto.info(), nodes_max);
  info.release = checker.OptionalName(field + ".release", proto.release());
  return {.id = NodeId(checker.Name(field + ".id", proto.id())),
          .incarnation = Incarnation(checker.NonZero(field + ".incarnation", proto.incarnation())),
          .info = std::move(info),
          .stream_number =
              StreamNumber(checker.NonZero(field + ".stream_number", proto.stream_number())),
          .settled = proto.settled(),
          .draining = proto.draining(),
          .answered = proto.answered()};
}

std::vector<NodeRecord> ReadNodes(RecordReader* in, const v1::JobRecord& proto) {
  std::vector<NodeRecord> nodes;
  in->checker().Count("nodes", proto.nodes_size(), kNodesMax);
  absl::flat_hash_set<std::string> ids;
  absl::flat_hash_set<uint64_t> incarnations;
  for (const v1::NodeRecord& node : proto.nodes()) {
    if (!in->ok()) break;
    const std::string field = At("nodes", nodes.size());
    nodes.push_back(ReadNode(in, field, node, proto.spec().nodes_max()));
    RequireFresh(in, &ids, nodes.back().id.value(), field + ".id");
    RequireFresh(in, &incarnations, node.incarnation(), field + ".incarnation");
  }
  return nodes;
}

DepartedRecord ReadDeparted(RecordReader* in, const std::string& field,
                            const v1::DepartedRecord& proto, uint64_t generation) {
  FieldChecker& checker = in->checker();
  DepartedRecord departed;
  departed.incarnation = Incarnation(checker.NonZero(field + ".incarnation", proto.incarnation()));
  departed.id = NodeId(checker.Name(field + ".id", proto.id()));
  departed.stream_number =
      StreamNumber(checker.NonZero(field + ".stream_number", proto.stream_number()));
  departed.processed = proto.processed();
  const uint32_t code =
      checker.Number(field + ".refusal_code", proto.refusal_code(), 0, kStatusCodeMax);
  const std::string message = checker.Text(field + ".refusal_message", proto.refusal_message());
  checker.Require(code != 0 || message.empty(), field + ".refusal_message",
                  "is there without a code");
  departed.refusal = absl::Status(static_cast<absl::StatusCode>(code), message);
  departed.left = proto.left();
  departed.done_in = Generation(proto.done_in());
  checker.Require(proto.done_in() <= generation, field + ".done_in",
                  absl::StrCat(proto.done_in(), " is above the generation, ", generation));
  checker.Require(proto.has_done_rank() == (proto.done_in() != 0), field + ".done_rank",
                  proto.has_done_rank() ? "is there without done_in" : "is missing beside done_in");
  if (proto.has_done_rank()) {
    departed.done_rank = checker.Number(field + ".done_rank", proto.done_rank(), 0, kNodesMax - 1);
  }
  return departed;
}

std::vector<DepartedRecord> ReadAllDeparted(RecordReader* in, const v1::JobRecord& proto) {
  std::vector<DepartedRecord> all;
  in->checker().Count("departed", proto.departed_size(), kNodesMax);
  absl::flat_hash_set<uint64_t> incarnations;
  for (const v1::DepartedRecord& departed : proto.departed()) {
    if (!in->ok()) break;
    const std::string field = At("departed", all.size());
    all.push_back(ReadDeparted(in, field, departed, proto.generation()));
    RequireFresh(in, &incarnations, departed.incarnation(), field + ".incarnation");
  }
  return all;
}

FormingRecord::Cause ReadCause(RecordReader* in, int cause) {
  switch (cause) {
    case v1::FORMING_CAUSE_FIRST:
      return FormingRecord::Cause::kFirst;
    case v1::FORMING_CAUSE_FAULT:
      return FormingRecord::Cause::kFault;
    case v1::FORMING_CAUSE_GROWTH:
      return FormingRecord::Cause::kGrowth;
    default:  // open enumerations of proto3 take any number
      in->checker().Require(false, "forming.cause", absl::StrCat(cause, " is no known cause"));
      return FormingRecord::Cause::kFirst;
  }
}

// Before the first generation there is no last one to remember.
void CheckFirst(RecordReader* in, const v1::FormingRecord& proto) {
  in->checker().Require(proto.pause_ns() == 0, "forming.pause_ns",
                        absl::StrCat(proto.pause_ns(), " is a pause before the first generation"));
  in->checker().Require(proto.previous_ranks().empty(), "forming.previous_ranks",
                        "are there before the first generation");
  in->checker().Require(proto.rule().empty(), "forming.rule", "is there before the first one");
}

FormingRecord ReadForming(RecordReader* in, const v1::JobRecord& job) {
  const v1::FormingRecord& proto = job.forming();
  FormingRecord forming;
  forming.cause = ReadCause(in, proto.cause());
  const bool first = forming.cause == FormingRecord::Cause::kFirst;
  const bool waits = !job.has_round() && !job.has_verdict();
  in->checker().Require(first || job.generation() != 0, "forming.cause",
                        "is the end of a generation, and there was none");
  in->checker().Require(!first || !waits || job.generation() == 0, "forming.cause",
                        "is the first generation, which is over");
  if (first) CheckFirst(in, proto);
  forming.pause = in->Time("forming.pause_ns", proto.pause_ns());
  in->checker().Require(forming.pause <= kTimeoutMax, "forming.pause_ns",
                        absl::StrCat(proto.pause_ns(), " is above a week"));
  forming.why = in->checker().Text("forming.why", proto.why());
  if (!first) forming.rule = in->RuleOf("forming.rule", proto.rule());
  in->checker().Count("forming.previous_ranks", proto.previous_ranks_size(), kNodesMax);
  absl::flat_hash_set<std::string> seen;
  for (const std::string& id : proto.previous_ranks()) {
    if (!in->ok()) break;
    const std::string field = At("forming.previous_ranks", forming.previous_ranks.size());
    forming.previous_ranks.emplace_back(in->checker().Name(field, id));
    RequireFresh(in, &seen, id, field);
  }
  return forming;
}

GrowthRecord ReadGrowth(RecordReader* in, const v1::GrowthRecord& proto) {
  GrowthRecord growth;
  if (proto.has_members_before()) {
    growth.members_before =
        in->checker().Number("growth.members_before", proto.members_before(), 1, kNodesMax);
  }
  growth.wanted = in->checker().Number("growth.wanted", proto.wanted(),
                                       proto.has_members_before() ? 1 : 0, kNodesMax);
  growth.fruitless = proto.fruitless();
  return growth;
}

BlameRecord ReadBlame(RecordReader* in, const std::string& field, const v1::BlameRecord& proto,
                      uint32_t most) {
  BlameRecord blame{.node = NodeId(in->checker().Name(field + ".node", proto.node())),
                    .hostname = in->checker().OptionalName(field + ".hostname", proto.hostname()),
                    .ages = {}};
  in->checker().Require(proto.age_ns_size() > 0, field + ".age_ns", "is empty");
  in->checker().Count(field + ".age_ns", proto.age_ns_size(), most);
  for (const int64_t ns : proto.age_ns()) {
    if (!in->ok()) break;
    const absl::Duration age = in->Time(field + ".age_ns", ns);
    in->checker().Require(blame.ages.empty() || age <= blame.ages.back(), field + ".age_ns",
                          absl::StrCat(ns, " is older than the one before"));
    blame.ages.push_back(age);
  }
  return blame;
}

std::vector<BlameRecord> ReadAllBlame(RecordReader* in, const v1::JobRecord& proto,
                                      uint32_t quarantine_after) {
  std::vector<BlameRecord> all;
  // The list has no bound of its own: at most one failure counts for each restart.
  absl::flat_hash_set<std::string> seen;
  for (const v1::BlameRecord& blame : proto.blame()) {
    if (!in->ok()) break;
    const std::string field = At("blame", all.size());
    all.push_back(ReadBlame(in, field, blame, quarantine_after));
    RequireFresh(in, &seen, blame.node(), field + ".node");
  }
  return all;
}

std::vector<DrainRecord> ReadDrained(RecordReader* in, const v1::JobRecord& proto) {
  std::vector<DrainRecord> all;
  in->checker().Count("drained", proto.drained_size(), kDrainedMax);
  for (const v1::DrainRecord& drain : proto.drained()) {
    if (!in->ok()) break;
    const std::string field = At("drained", all.size());
    FieldChecker& checker = in->checker();
    all.push_back({.node_id = NodeId(checker.Name(field + ".node_id", drain.node_id())),
                   .hostname = checker.OptionalName(field + ".hostname", drain.hostname()),
                   .address = checker.OptionalName(field + ".address", drain.address()),
                   .reason = checker.Text(field + ".reason", drain.reason())});
  }
  return all;
}

void CheckSteps(RecordReader* in, const std::string& field, const v1::GenerationSummary& proto) {
  in->checker().Require(proto.has_first_step() == proto.has_last_step(), field + ".last_step",
                        "or first_step is missing: they come together");
  in->checker().Require(
      proto.first_step() <= proto.last_step(), field + ".first_step",
      absl::StrCat(proto.first_step(), " is above last_step, ", proto.last_step()));
}

WarmStart ReadWarm(RecordReader* in, const std::string& field, const v1::GenerationSummary& proto) {
  const v1::WarmStart& warm = proto.warm();
  in->checker().Require(warm.warm_workers() + uint64_t{warm.cold_workers()} > 0, field,
                        "is of nobody");
  return {.warm_workers =
              in->checker().Number(field + ".warm_workers", warm.warm_workers(), 0, kWorkersMax),
          .cold_workers =
              in->checker().Number(field + ".cold_workers", warm.cold_workers(), 0, kWorkersMax),
          .saved = absl::Milliseconds(warm.saved_ms())};
}

GenerationSummary ReadGeneration(RecordReader* in, const std::string& field,
                                 const v1::GenerationSummary& proto) {
  FieldChecker& checker = in->checker();
  GenerationSummary summary;
  summary.generation = Generation(proto.generation());
  summary.world_size = checker.Number(field + ".world_size", proto.world_size(), 1, kWorkersMax);
  summary.nodes = checker.Number(field + ".nodes", proto.nodes(), 1, kNodesMax);
  summary.reason = checker.Text(field + ".reason", proto.reason());
  summary.rule = in->RuleOf(field + ".rule", proto.rule());
  summary.age = in->Time(field + ".age_ns", proto.age_ns());
  if (proto.has_ended_ns()) {
    summary.ended = in->Time(field + ".ended_ns", proto.ended_ns());
    checker.Require(*summary.ended <= summary.age, field + ".ended_ns",
                    absl::StrCat(proto.ended_ns(), " is above age_ns, ", proto.age_ns()));
  }
  summary.end_reason = checker.Text(field + ".end_reason", proto.end_reason());
  CheckSteps(in, field, proto);
  if (proto.has_first_step())
    summary.first_step = in->Step(field + ".first_step", proto.first_step());
  if (proto.has_last_step()) summary.last_step = in->Step(field + ".last_step", proto.last_step());
  if (proto.has_warm()) summary.warm = ReadWarm(in, field + ".warm", proto);
  return summary;
}

// The numbers are contiguous up to the job's generation; all but the live one have ended.
std::vector<GenerationSummary> ReadGenerations(RecordReader* in, const v1::JobRecord& proto) {
  std::vector<GenerationSummary> all;
  const int count = proto.generations_size();
  in->checker().Count("generations", count, kGenerationsRecordedMax);
  in->checker().Require((count > 0) == (proto.generation() > 0), "generations",
                        absl::StrCat("are ", count, ", and the last is ", proto.generation()));
  in->checker().Require(static_cast<uint64_t>(count) <= proto.generation(), "generations",
                        absl::StrCat("are ", count, ", more than there were"));
  const bool live = proto.has_round() && !proto.round().has_closing();
  for (const v1::GenerationSummary& each : proto.generations()) {
    if (!in->ok()) break;
    const std::string field = At("generations", all.size());
    const uint64_t number = proto.generation() - static_cast<uint64_t>(count) + all.size() + 1;
    all.push_back(ReadGeneration(in, field, each));
    in->checker().Require(each.generation() == number, field + ".generation",
                          absl::StrCat(each.generation(), " is not ", number));
    const bool lives = live && number == proto.generation();
    in->checker().Require(each.has_ended_ns() != lives, field + ".ended_ns",
                          lives ? "is there, and the generation lives" : "is missing");
  }
  return all;
}

LedgerRecord ReadLedger(RecordReader* in, const v1::JobRecord& job,
                        const std::optional<RoundRecord>& round) {
  const v1::LedgerRecord& proto = job.ledger();
  LedgerRecord ledger;
  ledger.age = in->Time("ledger.age_ns", proto.age_ns());
  ledger.first = proto.first();
  ledger.marks = proto.marks();
  in->checker().Count("ledger.booked", proto.booked_size(), kTimeCauses);
  std::set<int> seen;
  for (const v1::BookedTime& time : proto.booked()) {
    if (!in->ok()) break;
    const int cause = time.cause();
    in->checker().Require(cause >= v1::TIME_CAUSE_RENDEZVOUS && cause <= v1::TIME_CAUSE_OTHER,
                          "ledger.booked.cause", absl::StrCat(cause, " is no known cause"));
    in->checker().Require(seen.insert(cause).second, "ledger.booked.cause",
                          absl::StrCat(cause, " comes twice"));
    ledger.booked[ReadTimeCause(cause)] = in->Time("ledger.booked.ns", time.ns());
  }
  const absl::Duration booked = ledger.booked.Total();
  const absl::Duration live = round ? round->age : absl::ZeroDuration();
  in->checker().Require(round ? booked + live == ledger.age : booked <= ledger.age, "ledger.booked",
                        absl::StrCat("sums up to ", absl::ToInt64Nanoseconds(booked),
                                     " ns, beside ", absl::ToInt64Nanoseconds(live),
                                     " of the live generation, of an age of ", proto.age_ns()));
  return ledger;
}

std::optional<Verdict> ReadVerdictOf(RecordReader* in, const v1::JobRecord& proto) {
  if (!proto.has_verdict()) return std::nullopt;
  Verdict verdict = ReadVerdict(&in->checker(), "verdict", proto.verdict());
  verdict.rule = in->RuleOf("verdict.rule", proto.verdict().rule());
  in->checker().Require(
      proto.verdict().generation() <= proto.generation(), "verdict.generation",
      absl::StrCat(proto.verdict().generation(), " is above the job's, ", proto.generation()));
  return verdict;
}

std::optional<JobSpec> ReadSpec(RecordReader* in, const v1::JobRecord& proto) {
  if (proto.has_spec()) {
    const std::string run_id = in->checker().Name("run_id", proto.run_id());
    return ReadJobSpec(&in->checker(), "spec", run_id, proto.spec());
  }
  const bool any = !proto.run_id().empty() || proto.nodes_size() > 0 || proto.generation() != 0 ||
                   proto.departed_size() > 0 || proto.blame_size() > 0 || proto.has_round() ||
                   proto.ledger().age_ns() != 0;
  in->checker().Require(!any, "spec", "is missing, and somebody has joined");
  return std::nullopt;
}

}  // namespace

absl::StatusOr<JobRecord> FromProto(const v1::JobRecord& proto) {
  RecordReader in;
  JobRecord record;
  record.term = Term(in.checker().NonZero("term", proto.term()));
  record.life = proto.life();
  in.checker().Require(record.life <= kLivesMax, "life",
                       absl::StrCat(record.life, " is above 2^23"));
  record.spec = ReadSpec(&in, proto);
  record.generation = Generation(proto.generation());
  in.checker().Require(proto.generation() <= kGenerationMax, "generation",
                       absl::StrCat(proto.generation(), " is above 2^56"));
  record.reason = in.checker().Text("reason", proto.reason());
  record.begun_step = in.Step("begun_step", proto.begun_step());
  record.history = ReadHistory(&in, proto.history());
  record.taken = in.checker().Text("taken", proto.taken());
  record.takes_service = proto.takes_service();
  record.nodes = ReadNodes(&in, proto);
  record.departed = ReadAllDeparted(&in, proto);
  record.round = ReadRound(&in, proto, record.nodes);
  record.verdict = ReadVerdictOf(&in, proto);
  record.forming = ReadForming(&in, proto);
  record.growth = ReadGrowth(&in, proto.growth());
  record.blame = ReadAllBlame(&in, proto, record.spec.value_or(JobSpec()).restart.quarantine_after);
  record.drained = ReadDrained(&in, proto);
  record.generations = ReadGenerations(&in, proto);
  record.ledger = ReadLedger(&in, proto, record.round);
  if (!in.ok()) return in.checker().status();
  return record;
}

}  // namespace ddprun::rendezvous
