#include "tests/support/sample_records.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/progress_page.h"
#include "rendezvous/core/verdict.h"
#include "tests/support/sample_messages.h"

namespace ddprun::rendezvous {
namespace {

constexpr uint32_t kNodesWanted = 6;

absl::Duration AnyTime(Rng* rng) {
  return absl::Nanoseconds(rng->Below(uint64_t{1} << (10 + rng->Below(45))));
}
std::string AnyText(Rng* rng) {
  static const char* const kTexts[] = {"", "node b is lost", "Schlüssel „a“\nund b",
                                       "'; DROP TABLE"};
  return kTexts[rng->Below(std::size(kTexts))];
}
uint32_t AnyNumber(Rng* rng) {
  return static_cast<uint32_t>(rng->Below(rng->Chance(20) ? 9 : 9999));
}
uint64_t AnyStep(Rng* rng) { return rng->Next() & kProgressStepMax; }
std::optional<uint64_t> MaybeStep(Rng* rng) {
  return rng->Chance(50) ? std::optional<uint64_t>(AnyStep(rng)) : std::nullopt;
}
std::string AnyRule(Rng* rng) {
  return RuleName(static_cast<Rule>(rng->Below(static_cast<uint64_t>(kLastRule) + 1)));
}
uint64_t AnyIdentity(Rng* rng) { return rng->Next() | 1; }

JobSpec AnySpec(Rng* rng) {
  JobSpec spec;
  spec.run_id = absl::StrCat("job", rng->Below(1000));
  spec.nodes_min = 1 + static_cast<uint32_t>(rng->Below(kNodesWanted));
  spec.nodes_max = kNodesWanted;
  spec.max_restarts = AnyNumber(rng);
  spec.survivors_restart = rng->Chance(50);
  spec.fingerprint = "0a1b";
  spec.description = AnyText(rng);
  spec.lease = absl::Milliseconds(200 + rng->Below(100'000));
  spec.lease_is_proof = rng->Chance(50);
  spec.stop_grace = absl::Milliseconds(1 + rng->Below(100'000));
  spec.restart.backoff_max = absl::Milliseconds(rng->Below(3) * 500);
  spec.restart.restart_window = absl::Milliseconds(rng->Below(3) * 1000);
  spec.restart.quarantine_after = 3;
  spec.restart.quarantine_shrinks = rng->Chance(50);
  return spec;
}

NodeRecord AnyNode(Rng* rng, uint32_t number) {
  NodeRecord node;
  node.id = NodeId(absl::StrCat("node", number));
  node.incarnation = Incarnation((AnyIdentity(rng) << 4) | number);
  node.info.hostname = absl::StrCat("host", number);
  node.info.agent_pid = AnyNumber(rng);
  node.info.address = absl::StrCat("10.0.0.", number);
  node.info.worker_count = 1 + static_cast<uint32_t>(rng->Below(8));
  if (rng->Chance(50)) node.info.node_rank = static_cast<uint32_t>(rng->Below(kNodesWanted));
  node.info.hosts_endpoint = rng->Chance(20);
  node.info.master_port = rng->Chance(50) ? 29500 : 0;
  node.info.guards = rng->Chance(50) ? "keeper" : "";
  node.info.release = rng->Chance(50) ? "0.1.0" : "";
  node.info.hosts_service = rng->Chance(20);
  node.stream_number = StreamNumber(1 + rng->Below(9));
  node.settled = rng->Next();
  node.draining = rng->Chance(20);
  node.answered = rng->Chance(80);
  return node;
}

DepartedRecord AnyDeparted(Rng* rng, const JobRecord& record) {
  DepartedRecord departed;
  departed.incarnation = Incarnation(AnyIdentity(rng));
  departed.id = NodeId(absl::StrCat("gone", rng->Below(4)));
  departed.stream_number = StreamNumber(1 + rng->Below(9));
  departed.processed = rng->Next();
  if (rng->Chance(50)) departed.refusal = absl::AbortedError(AnyText(rng));
  departed.left = rng->Chance(50);
  if (rng->Chance(50)) {
    departed.done_in = record.generation;
    departed.done_rank = static_cast<uint32_t>(rng->Below(kNodesWanted));
  }
  return departed;
}

// Members as nodes are placed: contiguous, and all of one role.
std::vector<MemberRecord> MembersOf(const std::vector<NodeRecord>& nodes) {
  std::vector<MemberRecord> members;
  uint32_t world = 0;
  for (uint32_t i = 0; i < nodes.size(); ++i) {
    members.push_back({.node = i,
                       .node_id = nodes[i].id,
                       .worker_count = nodes[i].info.worker_count,
                       .base_rank = world,
                       .base_role_rank = world});
    world += nodes[i].info.worker_count;
  }
  for (MemberRecord& member : members) member.role_world_size = world;
  return members;
}

ClosingRecord AnyClosing(Rng* rng, absl::Duration age) {
  return {.age = age / 4,
          .uptime = absl::Trunc(age / 2, absl::Nanoseconds(1)),
          .reason = AnyText(rng),
          .for_growth = rng->Chance(50),
          .loss = AnyText(rng)};
}

RoundRecord AnyRound(Rng* rng, const std::vector<NodeRecord>& nodes) {
  RoundRecord round;
  round.age = AnyTime(rng);
  round.members = MembersOf(nodes);
  round.terms.master_addr = "host0";
  round.terms.master_port = rng->Chance(50) ? 29500 : 0;
  round.terms.store_address = rng->Chance(50) ? "host0:4711" : "";
  round.terms.reason = AnyText(rng);
  round.terms.rule = AnyRule(rng);
  round.terms.restart_count = AnyNumber(rng);
  round.terms.restarts_charged = static_cast<uint32_t>(rng->Below(round.terms.restart_count + 1));
  if (rng->Chance(50)) round.closing = AnyClosing(rng, round.age);
  if (round.closing) round.closing->age = absl::Trunc(round.closing->age, absl::Nanoseconds(1));
  for (MemberRecord& member : round.members) {
    member.started = rng->Chance(50);
    member.succeeded = rng->Chance(50);
    if (&member == &round.members.front() || rng->Chance(60)) continue;
    member.node.reset();  // done and gone, or lost
    member.succeeded = true;
    if (round.closing) {
      member.fate = rng->Chance(50) ? MemberRecord::Fate::kLost : MemberRecord::Fate::kLeft;
    }
  }
  return round;
}

Verdict AnyVerdict(Rng* rng, Generation generation) {
  Verdict verdict;
  verdict.outcome = static_cast<Outcome>(rng->Below(5));
  verdict.reason = AnyText(rng);
  if (rng->Chance(50)) verdict.failures.push_back(SampleFailure());
  verdict.first_causes = static_cast<uint32_t>(verdict.failures.size());
  verdict.generation = generation;
  verdict.restart_count = AnyNumber(rng);
  verdict.rule = AnyRule(rng);
  return verdict;
}

FormingRecord AnyForming(Rng* rng, bool first) {
  FormingRecord forming;
  forming.why = AnyText(rng);
  if (first) return forming;
  forming.cause = rng->Chance(50) ? FormingRecord::Cause::kFault : FormingRecord::Cause::kGrowth;
  forming.pause = rng->Chance(50) ? absl::ZeroDuration() : absl::Milliseconds(rng->Below(30'000));
  forming.rule = AnyRule(rng);
  for (uint64_t i = rng->Below(4); i > 0; --i) {
    forming.previous_ranks.push_back(NodeId(absl::StrCat("node", i)));
  }
  return forming;
}

std::vector<GenerationSummary> AnyGenerations(Rng* rng, uint64_t last, bool live) {
  std::vector<GenerationSummary> all;
  if (last == 0) return all;
  for (uint64_t i = rng->Below(std::min<uint64_t>(last, 20)) + 1; i > 0; --i) {
    GenerationSummary each;
    each.generation = Generation(last - i + 1);
    each.nodes = 1 + static_cast<uint32_t>(rng->Below(kNodesWanted));
    each.world_size = each.nodes * 8;
    each.reason = AnyText(rng);
    each.rule = AnyRule(rng);
    each.age = AnyTime(rng);
    if (i > 1 || !live) each.ended = absl::Trunc(each.age / 3, absl::Nanoseconds(1));
    each.end_reason = AnyText(rng);
    if (rng->Chance(50)) {
      each.first_step = AnyStep(rng) / 2;
      each.last_step = *each.first_step + rng->Below(1000);
    }
    if (rng->Chance(50)) {
      each.warm = {.warm_workers = 1 + static_cast<uint32_t>(rng->Below(each.world_size)),
                   .cold_workers = static_cast<uint32_t>(rng->Below(each.world_size)),
                   .saved = absl::Milliseconds(rng->Below(60'000))};
    }
    all.push_back(std::move(each));
  }
  return all;
}

LedgerRecord AnyLedger(Rng* rng, const JobRecord& record) {
  LedgerRecord ledger{.first = rng->Chance(50), .marks = rng->Chance(50)};
  for (absl::Duration& spent : ledger.booked.by) {
    if (rng->Chance(50)) spent = AnyTime(rng);
  }
  ledger.age = ledger.booked.Total() + (record.round ? record.round->age : AnyTime(rng));
  return ledger;
}

RestartHistory AnyHistory(Rng* rng) {
  RestartHistory history{.restart_count = AnyNumber(rng),
                         .membership_changes = AnyNumber(rng),
                         .quick_failures = AnyNumber(rng),
                         .same_failures = AnyNumber(rng),
                         .last_failure = rng->Chance(50) ? "1 0  \xff\nError" : "",
                         .without_progress = AnyNumber(rng),
                         .highest = MaybeStep(rng)};
  history.restarts_charged = static_cast<uint32_t>(rng->Below(history.restart_count + 1));
  return history;
}

void AddForPeople(Rng* rng, JobRecord* record) {
  for (uint64_t i = rng->Below(3); i > 0; --i) {
    record->drained.push_back({.node_id = NodeId("node1"),
                               .hostname = "host1",
                               .address = AnyText(rng).empty() ? "" : "10.0.0.1",
                               .reason = AnyText(rng)});
  }
  for (uint64_t i = rng->Below(3); i > 0; --i) {
    const absl::Duration age = AnyTime(rng);
    record->blame.push_back({.node = NodeId(absl::StrCat("node", i)),
                             .hostname = "host1",
                             .ages = {age, absl::Trunc(age / 2, absl::Nanoseconds(1))}});
  }
}

}  // namespace

JobRecord RandomRecord(Rng* rng) {
  JobRecord record;
  record.term = Term(AnyIdentity(rng));
  record.life = rng->Below(9);
  record.reason = AnyText(rng);
  record.takes_service = rng->Chance(20);
  if (rng->Chance(5)) return record;  // nobody has joined
  record.spec = AnySpec(rng);
  record.generation = Generation(rng->Below(3) * rng->Below(1000));
  record.begun_step = AnyStep(rng);
  record.history = AnyHistory(rng);
  record.taken = AnyText(rng);
  const auto nodes = static_cast<uint32_t>(1 + rng->Below(kNodesWanted));
  for (uint32_t i = 0; i < nodes; ++i) record.nodes.push_back(AnyNode(rng, i));
  for (uint64_t i = rng->Below(3); i > 0; --i) record.departed.push_back(AnyDeparted(rng, record));
  const bool formed = record.generation != Generation();
  if (!formed) {
    for (DepartedRecord& each : record.departed) each.done_rank.reset();
  }
  if (formed && rng->Chance(60)) {
    record.round = AnyRound(rng, record.nodes);
    for (uint32_t i = 0; i < nodes; ++i) {
      // A member that is gone has no node in the record any more; here another one has joined.
      if (!record.round->members[i].node) record.nodes[i].id = NodeId(absl::StrCat("new", i));
    }
  } else if (rng->Chance(20)) {
    record.verdict = AnyVerdict(rng, record.generation);
  }
  record.forming = AnyForming(rng, !formed);
  if (rng->Chance(50)) record.growth = {.members_before = 3, .wanted = 2, .fruitless = 1};
  AddForPeople(rng, &record);
  const bool live = record.round && !record.round->closing;
  record.generations = AnyGenerations(rng, record.generation.value(), live);
  record.ledger = AnyLedger(rng, record);
  return record;
}

JobRecord RunningRecord(const std::string& run_id, uint32_t nodes) {
  Rng rng(nodes);
  JobRecord record;
  record.term = Term(7);
  record.spec = AnySpec(&rng);
  record.spec->run_id = run_id;
  record.spec->nodes_min = 1;
  record.spec->nodes_max = std::max(nodes, kNodesWanted);
  record.generation = Generation(1);
  record.reason = "all nodes have joined";
  for (uint32_t i = 0; i < nodes; ++i) {
    record.nodes.push_back({.id = NodeId(absl::StrCat("node-", i, ".cluster.example.org")),
                            .incarnation = Incarnation(rng.Next() | 1),
                            .info = {.hostname = absl::StrCat("node-", i, ".cluster.example.org"),
                                     .agent_pid = 4242,
                                     .address = "10.11.12.13",
                                     .worker_count = 8,
                                     .store_address = "10.11.12.13:45678",
                                     .guards = "keeper, parent-death signal, cgroup"},
                            .stream_number = StreamNumber(1),
                            .settled = 3,
                            .answered = true});
  }
  record.round = RoundRecord{.age = absl::Nanoseconds(123'456'789),
                             .members = MembersOf(record.nodes),
                             .terms = {.master_addr = "10.11.12.13",
                                       .master_port = 29500,
                                       .store_address = "10.11.12.13:45678",
                                       .reason = "all nodes have joined",
                                       .rule = "all_nodes"}};
  record.generations.push_back({.generation = Generation(1),
                                .world_size = nodes * 8,
                                .nodes = nodes,
                                .reason = "all nodes have joined",
                                .rule = "all_nodes",
                                .age = record.round->age});
  record.ledger.booked[TimeCause::kRendezvous] = absl::Seconds(1);
  record.ledger.age = absl::Seconds(1) + record.round->age;
  return record;
}

JobRecord ClosingJobRecord(const std::string& run_id) {
  JobRecord record = RunningRecord(run_id, 3);
  record.round->closing = {.age = absl::Nanoseconds(456'789),
                           .uptime = absl::Nanoseconds(123'000'000),
                           .reason = "a node is lost",
                           .for_growth = false,
                           .loss = "a node is lost"};
  record.round->members[1].node.reset();
  record.round->members[1].fate = MemberRecord::Fate::kLost;
  record.generations.back().ended = record.round->closing->age;
  return record;
}

}  // namespace ddprun::rendezvous
