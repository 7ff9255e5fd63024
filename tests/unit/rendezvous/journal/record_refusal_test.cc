#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "rendezvous/core/bounds.h"
#include "rendezvous/journal/record_fields.h"
#include "rendezvous/journal/record_proto.h"
#include "rendezvous/wire/field_checker.h"
#include "tests/support/sample_records.h"

// Each rule about what is read, broken alone: the text names the field and the value.
namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

struct Case {
  std::string text;  // of the refusal
  std::function<void(v1::JobRecord*)> damage;
};

// Damages to a job of three nodes that runs.
std::vector<Case> RunningCases() {
  return {
      {"term: is 0", [](auto* r) { r->set_term(0); }},
      {"life: 18446744073709551615 is above 2^23", [](auto* r) { r->set_life(UINT64_MAX); }},
      {"generation: 18446744073709551615 is above 2^56",
       [](auto* r) { r->set_generation(UINT64_MAX); }},
      {"run_id: is empty", [](auto* r) { r->set_run_id(""); }},
      {"spec: is missing, and somebody has joined", [](auto* r) { r->clear_spec(); }},
      {"spec.nodes_max: 16385 is not within 1 to 16384",
       [](auto* r) { r->mutable_spec()->set_nodes_max(kNodesMax + 1); }},
      {"spec.lease_ms: 1 ms is not within", [](auto* r) { r->mutable_spec()->set_lease_ms(1); }},
      {"reason: has 4097 bytes",
       [](auto* r) { r->set_reason(std::string(kTextBytesMax + 1, 'x')); }},
      {"begun_step: 72057594037927936 is not below 2^56",
       [](auto* r) { r->set_begun_step(uint64_t{1} << 56); }},
      {"taken: has 4097 bytes", [](auto* r) { r->set_taken(std::string(kTextBytesMax + 1, 'x')); }},
      {"history.restarts_charged: 2 is not within 0 to 1",
       [](auto* r) {
         r->mutable_history()->set_restart_count(1);
         r->mutable_history()->set_restarts_charged(2);
       }},
      {"history.highest: 18446744073709551615 is not below",
       [](auto* r) { r->mutable_history()->set_highest(UINT64_MAX); }},
      {"history.last_failure: has 8257 bytes",
       [](auto* r) {
         r->mutable_history()->set_last_failure(std::string(kFailureKindBytesMax + 1, 'x'));
       }},
  };
}

std::vector<Case> NodeCases() {
  return {
      {"nodes[1].id: is empty", [](auto* r) { r->mutable_nodes(1)->set_id(""); }},
      {"nodes[1].id: node-0.cluster.example.org comes twice",
       [](auto* r) { r->mutable_nodes(1)->set_id(r->nodes(0).id()); }},
      {"nodes[2].incarnation: 5 comes twice",
       [](auto* r) {
         r->mutable_nodes(0)->set_incarnation(5);
         r->mutable_nodes(2)->set_incarnation(5);
       }},
      {"nodes[0].incarnation: is 0", [](auto* r) { r->mutable_nodes(0)->set_incarnation(0); }},
      {"nodes[0].stream_number: is 0", [](auto* r) { r->mutable_nodes(0)->set_stream_number(0); }},
      {"nodes[0].info: is missing", [](auto* r) { r->mutable_nodes(0)->clear_info(); }},
      {"nodes[0].info.node_rank: 6 is not below nodes_max",
       [](auto* r) { r->mutable_nodes(0)->mutable_info()->set_node_rank(6); }},
      {"nodes[0].release: 'a\\n' holds a control character",
       [](auto* r) { r->mutable_nodes(0)->set_release("a\n"); }},
      {"nodes[0].info.hostname: 'a\\n' holds a control character",
       [](auto* r) { r->mutable_nodes(0)->mutable_info()->set_hostname("a\n"); }},
      {"departed[0].incarnation: is 0",
       [](auto* r) {
         r->add_departed()->set_id("x");
         r->mutable_departed(0)->set_stream_number(1);
       }},
      {"departed[1].incarnation: 5 comes twice",
       [](auto* r) {
         for (int i = 0; i < 2; ++i) {
           v1::DepartedRecord* departed = r->add_departed();
           departed->set_id("x");
           departed->set_incarnation(5);
           departed->set_stream_number(1);
         }
       }},
      {"drained[0].node_id: is empty", [](auto* r) { r->add_drained(); }},
  };
}

v1::DepartedRecord* AddDeparted(v1::JobRecord* record) {
  v1::DepartedRecord* departed = record->add_departed();
  departed->set_id("x");
  departed->set_incarnation(5);
  departed->set_stream_number(1);
  return departed;
}

std::vector<Case> DepartedCases() {
  return {
      {"departed[0].refusal_code: 17 is not within 0 to 16",
       [](auto* r) { AddDeparted(r)->set_refusal_code(17); }},
      {"departed[0].refusal_message: is there without a code",
       [](auto* r) { AddDeparted(r)->set_refusal_message("x"); }},
      {"departed[0].done_in: 2 is above the generation, 1",
       [](auto* r) {
         AddDeparted(r)->set_done_in(2);
         r->mutable_departed(0)->set_done_rank(0);
       }},
      {"departed[0].done_rank: is missing beside done_in",
       [](auto* r) { AddDeparted(r)->set_done_in(1); }},
      {"departed[0].done_rank: is there without done_in",
       [](auto* r) { AddDeparted(r)->set_done_rank(1); }},
      {"departed[0].done_rank: 16384 is not within",
       [](auto* r) {
         AddDeparted(r)->set_done_in(1);
         r->mutable_departed(0)->set_done_rank(kNodesMax);
       }},
  };
}

v1::MemberRecord* MemberOf(v1::JobRecord* record, int rank) {
  return record->mutable_round()->mutable_members(rank);
}

std::vector<Case> RoundCases() {
  return {
      {"round: is there without a generation", [](auto* r) { r->set_generation(0); }},
      {"verdict: is there beside a live generation", [](auto* r) { r->mutable_verdict(); }},
      {"round.age_ns: -1 ns is not within", [](auto* r) { r->mutable_round()->set_age_ns(-1); }},
      {"round.age_ns: 2305843009213693953 ns is not within",
       [](auto* r) { r->mutable_round()->set_age_ns(kAgeMaxNs + 1); }},
      {"round.members: is empty", [](auto* r) { r->mutable_round()->clear_members(); }},
      {"round.members: has 3 entries, at most 2",
       [](auto* r) { r->mutable_spec()->set_nodes_max(2); }},
      {"round.members[2].base_rank: 17 is not 16",
       [](auto* r) { MemberOf(r, 2)->set_base_rank(17); }},
      {"round.members[1].worker_count: 0 is not within",
       [](auto* r) { MemberOf(r, 1)->set_worker_count(0); }},
      {"round.members[1].role_world_size: 9 is below",
       [](auto* r) { MemberOf(r, 1)->set_role_world_size(9); }},
      {"round.members[1].fate: 9 is no known fate",
       [](auto* r) { MemberOf(r, 1)->set_fate(static_cast<v1::MemberFate>(9)); }},
      {"round.members[1].fate: is gone from a generation that nothing ends",
       [](auto* r) { MemberOf(r, 1)->set_fate(v1::MEMBER_FATE_LEFT); }},
      {"round.members[1].node: is missing, and the member is neither",
       [](auto* r) { MemberOf(r, 1)->clear_node(); }},
      {"round.members[1].node: 3 is not below the number of nodes, 3",
       [](auto* r) { MemberOf(r, 1)->set_node(3); }},
      {"round.members[1].node: 0 comes twice", [](auto* r) { MemberOf(r, 1)->set_node(0); }},
      {"round.members[1].node: 1 is 'node-1.cluster.example.org', not 'other'",
       [](auto* r) { MemberOf(r, 1)->set_node_id("other"); }},
      {"round.master_addr: is empty", [](auto* r) { r->mutable_round()->set_master_addr(""); }},
      {"round.master_port: 65536 is not within",
       [](auto* r) { r->mutable_round()->set_master_port(65536); }},
      {"round.rule: 'guess' is no rule", [](auto* r) { r->mutable_round()->set_rule("guess"); }},
      {"round.restarts_charged: 1 is not within 0 to 0",
       [](auto* r) { r->mutable_round()->set_restarts_charged(1); }},
  };
}

std::vector<Case> RestCases() {
  return {
      {"forming.cause: 7 is no known cause",
       [](auto* r) { r->mutable_forming()->set_cause(static_cast<v1::FormingCause>(7)); }},
      {"forming.pause_ns: 5 is a pause before the first generation",
       [](auto* r) { r->mutable_forming()->set_pause_ns(5); }},
      {"forming.previous_ranks: are there before",
       [](auto* r) { r->mutable_forming()->add_previous_ranks("a"); }},
      {"forming.rule: is there before", [](auto* r) { r->mutable_forming()->set_rule("growth"); }},
      {"forming.rule: '' is no rule",
       [](auto* r) { r->mutable_forming()->set_cause(v1::FORMING_CAUSE_FAULT); }},
      {"forming.previous_ranks[1]: a comes twice",
       [](auto* r) {
         r->mutable_forming()->set_cause(v1::FORMING_CAUSE_FAULT);
         r->mutable_forming()->set_rule("growth");
         r->mutable_forming()->add_previous_ranks("a");
         r->mutable_forming()->add_previous_ranks("a");
       }},
      {"forming.pause_ns: 604800000000001 is above a week",
       [](auto* r) {
         r->mutable_forming()->set_cause(v1::FORMING_CAUSE_FAULT);
         r->mutable_forming()->set_pause_ns(604'800'000'000'001);
       }},
      {"growth.members_before: 0 is not within 1",
       [](auto* r) { r->mutable_growth()->set_members_before(0); }},
      {"growth.wanted: 0 is not within 1",
       [](auto* r) { r->mutable_growth()->set_members_before(2); }},
      {"blame[0].node: is empty", [](auto* r) { r->add_blame()->add_age_ns(1); }},
      {"blame[0].age_ns: is empty", [](auto* r) { r->add_blame()->set_node("a"); }},
      {"blame[0].age_ns: has 4 entries, at most 3",
       [](auto* r) {
         r->add_blame()->set_node("a");
         for (int i = 0; i < 4; ++i) r->mutable_blame(0)->add_age_ns(1);
       }},
      {"blame[0].age_ns: 2 is older than the one before",
       [](auto* r) {
         r->add_blame()->set_node("a");
         r->mutable_blame(0)->add_age_ns(1);
         r->mutable_blame(0)->add_age_ns(2);
       }},
      {"blame[1].node: a comes twice",
       [](auto* r) {
         for (int i = 0; i < 2; ++i) {
           r->add_blame()->set_node("a");
           r->mutable_blame(i)->add_age_ns(1);
         }
       }},
  };
}

v1::GenerationSummary* LastOf(v1::JobRecord* record) {
  return record->mutable_generations(record->generations_size() - 1);
}

std::vector<Case> HistoryCases() {
  return {
      {"generations: are 0, and the last is 1", [](auto* r) { r->clear_generations(); }},
      {"generations: are 2, more than there were", [](auto* r) { r->add_generations(); }},
      {"generations[0].generation: 4 is not 1", [](auto* r) { LastOf(r)->set_generation(4); }},
      {"generations[0].generation: 1 is not 2", [](auto* r) { r->set_generation(2); }},
      {"generations[0].world_size: 0 is not within", [](auto* r) { LastOf(r)->set_world_size(0); }},
      {"generations[0].rule: 'x' is no rule", [](auto* r) { LastOf(r)->set_rule("x"); }},
      {"generations[0].ended_ns: is there, and the generation lives",
       [](auto* r) { LastOf(r)->set_ended_ns(0); }},
      {"generations[0].ended_ns: 123456790 is above age_ns, 123456789",
       [](auto* r) { LastOf(r)->set_ended_ns(123'456'790); }},
      {"generations[0].last_step: or first_step is missing",
       [](auto* r) { LastOf(r)->set_last_step(1); }},
      {"generations[0].first_step: 2 is above last_step, 1",
       [](auto* r) {
         LastOf(r)->set_first_step(2);
         LastOf(r)->set_last_step(1);
       }},
      {"generations[0].warm: is of nobody", [](auto* r) { LastOf(r)->mutable_warm(); }},
      {"ledger.age_ns: -5 ns", [](auto* r) { r->mutable_ledger()->set_age_ns(-5); }},
      {"ledger.booked: sums up to 1000000000 ns, beside 123456788",
       [](auto* r) { r->mutable_round()->set_age_ns(123'456'788); }},
      {"ledger.booked.cause: 99 is no known cause",
       [](auto* r) {
         r->mutable_ledger()->mutable_booked(0)->set_cause(static_cast<v1::TimeCause>(99));
       }},
      {"ledger.booked.cause: 1 comes twice",
       [](auto* r) { *r->mutable_ledger()->add_booked() = r->ledger().booked(0); }},
      {"ledger.booked.ns: -1 ns",
       [](auto* r) { r->mutable_ledger()->mutable_booked(0)->set_ns(-1); }},
  };
}

void ExpectRefused(const v1::JobRecord& sound, const std::vector<Case>& cases) {
  ASSERT_TRUE(FromProto(sound).ok()) << FromProto(sound).status();
  for (const Case& each : cases) {
    v1::JobRecord damaged = sound;
    each.damage(&damaged);
    const absl::StatusOr<JobRecord> read = FromProto(damaged);
    EXPECT_FALSE(read.ok()) << each.text;
    EXPECT_THAT(read.status().message(), HasSubstr(each.text));
  }
}

v1::JobRecord Running() { return ToProto(RunningRecord("job7", 3)); }

TEST(RecordRefusal, WhatTheJobIs) { ExpectRefused(Running(), RunningCases()); }
TEST(RecordRefusal, Nodes) { ExpectRefused(Running(), NodeCases()); }
TEST(RecordRefusal, Departed) { ExpectRefused(Running(), DepartedCases()); }
TEST(RecordRefusal, TheLiveGeneration) { ExpectRefused(Running(), RoundCases()); }
TEST(RecordRefusal, WhatIsWaitedFor) { ExpectRefused(Running(), RestCases()); }
TEST(RecordRefusal, WhatThereWas) { ExpectRefused(Running(), HistoryCases()); }

TEST(RecordRefusal, TheEndOfAGeneration) {
  ExpectRefused(
      ToProto(ClosingJobRecord("job7")),
      {{"round.closing.age_ns: -1 ns",
        [](auto* r) { r->mutable_round()->mutable_closing()->set_age_ns(-1); }},
       {"round.closing.uptime_ns: 123000001 and age_ns, 456789, are more than",
        [](auto* r) { r->mutable_round()->mutable_closing()->set_uptime_ns(123'000'001); }},
       {"round.members[1].node: is that of a member that is gone",
        [](auto* r) { MemberOf(r, 1)->set_node(1); }},
       {"round.members[0].node: is missing, and the member is neither",
        [](auto* r) {
          MemberOf(r, 0)->clear_node();
          MemberOf(r, 0)->set_succeeded(true);
        }},
       {"generations[0].ended_ns: is missing", [](auto* r) { LastOf(r)->clear_ended_ns(); }}});
}

TEST(RecordRefusal, JobsWithoutALiveGeneration) {
  JobRecord ended = RunningRecord("job7", 3);
  ended.round.reset();
  ended.verdict = Verdict{.generation = Generation(1), .rule = "stopped"};
  ended.generations.back().ended = absl::ZeroDuration();
  ExpectRefused(ToProto(ended), {{"verdict.rule: 'x' is no rule",
                                  [](auto* r) { r->mutable_verdict()->set_rule("x"); }},
                                 {"verdict.generation: 2 is above the job's, 1",
                                  [](auto* r) { r->mutable_verdict()->set_generation(2); }},
                                 {"verdict.outcome: 0 is no known outcome",
                                  [](auto* r) { r->mutable_verdict()->clear_outcome(); }},
                                 {"forming.cause: is the first generation, which is over",
                                  [](auto* r) { r->clear_verdict(); }},
                                 {"ledger.booked: sums up to 1000000000 ns",
                                  [](auto* r) { r->mutable_ledger()->set_age_ns(1); }}});
  JobRecord first;
  first.term = Term(1);
  first.spec = ended.spec;
  ExpectRefused(ToProto(first),
                {{"forming.cause: is the end of a generation, and there was none",
                  [](auto* r) { r->mutable_forming()->set_cause(v1::FORMING_CAUSE_GROWTH); }}});
}

TEST(RecordRefusal, TooManyOfSomething) {
  v1::JobRecord many = Running();
  for (uint32_t i = 0; i <= kNodesMax; ++i) many.add_nodes();
  EXPECT_THAT(FromProto(many).status().message(), HasSubstr("nodes: has 16388 entries"));
  many = Running();
  for (uint32_t i = 0; i <= kNodesMax; ++i) many.add_departed();
  EXPECT_THAT(FromProto(many).status().message(), HasSubstr("departed: has 16385 entries"));
  many = Running();
  for (size_t i = 0; i <= kDrainedMax; ++i) many.add_drained();
  EXPECT_THAT(FromProto(many).status().message(), HasSubstr("drained: has 1025 entries"));
  many = Running();
  for (size_t i = 0; i < kGenerationsRecordedMax; ++i) many.add_generations();
  EXPECT_THAT(FromProto(many).status().message(), HasSubstr("generations: has 257 entries"));
  EXPECT_EQ(FromProto(many).status().code(), absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace ddprun::rendezvous
