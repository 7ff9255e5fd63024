// What a fault costs, from the lines of event logs.
#include "tools/chaos/core/chaos_cost.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "tools/chaos/core/chaos_text.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using Lines = std::vector<TimelineLine>;

// Lines as "ms origin event key=value key=value"; an indented line goes on with the last one.
Lines Read(const std::string& text) {
  Lines lines;
  const std::string joined = absl::StrReplaceAll(text, {{"\n ", " "}});
  for (absl::string_view row : absl::StrSplit(joined, '\n', absl::SkipEmpty())) {
    const std::vector<std::string> words = absl::StrSplit(row, ' ', absl::SkipEmpty());
    TimelineLine line;
    double at = 0;
    EXPECT_TRUE(absl::SimpleAtod(words.at(0), &at)) << row;
    line.at = Instant::FromNanoseconds(static_cast<int64_t>(at * 1e6));
    line.who = words.at(1);
    line.event = words.at(2);
    for (size_t i = 3; i < words.size(); ++i) {
      const std::pair<std::string, std::string> field =
          absl::StrSplit(words[i], absl::MaxSplits('=', 1));
      line.fields.insert(field);
    }
    lines.push_back(line);
  }
  return lines;
}

absl::Duration Ms(double milliseconds) { return absl::Milliseconds(milliseconds); }

// Two nodes, a worker of the second is killed 1 s in; one restart.
constexpr char kKilled[] = R"(
0    agent:a assignment generation=1 rank=0 restart_count=0 rule=all_nodes pid=10
0    agent:b assignment generation=1 rank=2 restart_count=0 rule=all_nodes pid=20
9    agent:a worker_started generation=1 local_rank=0 worker_pid=11 pid=10
9    agent:b worker_started generation=1 local_rank=0 worker_pid=21 pid=20
100  chaos:b marked generation=1 step=0 rank=2
1000 chaos:b fault fault=1 occurrence=1 kind=worker_killed victim=rank_2 node=b
  generation=1 worker_pid=21 local_rank=0 step=90
1001 agent:b worker_exit generation=1 worker_pid=21 local_rank=0 pid=20
1001 agent:b stop_begin generation=1 why=killed pid=20
1002 service round_closing generation=1 reason=killed trigger=worker_failed
1003 agent:b group_empty generation=1 pid=20
1003 chaos:b reached generation=1 step=91
1007 agent:a group_empty generation=1 pid=10
1008 service round_closed generation=1 rule=worker_failure restart_count=1
1009 agent:a assignment generation=2 rank=0 restart_count=1 rule=worker_failure pid=10
1009 agent:b assignment generation=2 rank=2 restart_count=1 rule=worker_failure pid=20
1020 agent:a worker_started generation=2 local_rank=0 worker_pid=12 pid=10
1025 agent:b worker_started generation=2 local_rank=0 worker_pid=22 pid=20
1200 chaos:b marked generation=2 step=81 rank=2
1210 chaos:a marked generation=2 step=80 rank=0
5000 service verdict outcome=succeeded rule=all_succeeded reason=done
)";

TEST(ChaosCost, AKilledWorker) {
  const ChaosReport report = WorkOutCosts(Read(kKilled), {}, {});
  ASSERT_EQ(report.faults.size(), 1U);
  const FaultCost& cost = report.faults[0];
  EXPECT_EQ(cost.outcome, "restarted");
  EXPECT_EQ(cost.noticed, Ms(1));
  EXPECT_EQ(cost.released, Ms(7)) << "the last survivor";
  EXPECT_EQ(cost.resumed, Ms(25));
  EXPECT_EQ(cost.training, Ms(200));
  EXPECT_EQ(cost.step_before, 91U);
  EXPECT_EQ(cost.step_after, 80U);
  EXPECT_EQ(cost.steps_lost, 11U);
  EXPECT_EQ(cost.restarts, 1U);
  EXPECT_EQ(cost.rule, "worker_failure");
  EXPECT_THAT(report.others, IsEmpty());
  EXPECT_EQ(report.outcome, "succeeded");
  EXPECT_EQ(report.restarts, 1U);
  EXPECT_FALSE(report.judged);
}

TEST(ChaosCost, TheOrderOfTheLinesDoesNotMatter) {
  Lines lines = Read(kKilled);
  std::reverse(lines.begin(), lines.end());
  EXPECT_EQ(WorkOutCosts(lines, {}, {}).faults.at(0).noticed, Ms(1));
}

TEST(ChaosCost, UnmarkedProgramsHaveNoSteps) {
  Lines lines = Read(kKilled);
  std::erase_if(lines, [](const TimelineLine& line) {
    return line.event == "marked" || line.event == "reached";
  });
  for (TimelineLine& line : lines) line.fields.erase("step");
  const FaultCost cost = WorkOutCosts(lines, {}, {}).faults.at(0);
  EXPECT_EQ(cost.steps_lost, std::nullopt);
  EXPECT_EQ(cost.training, std::nullopt);
  EXPECT_EQ(cost.resumed, Ms(25));
}

TEST(ChaosCost, Expectations) {
  const struct {
    Expectations expect;
    const char* missed;  // "" = nothing
  } kCases[] = {
      {{.noticed = Ms(1)}, ""},
      {{.noticed = Ms(0.5)}, "noticed: after 1ms, expected within 500us"},
      {{.released = Ms(6)}, "released: after 7ms, expected within 6ms"},
      {{.resumed = Ms(25)}, ""},
      {{.resumed = Ms(24)}, "resumed: after 25ms"},
      {{.training = Ms(199)}, "training: after 200ms"},
      {{.steps_lost = 11}, ""},
      {{.steps_lost = 10}, "steps_lost: 11, expected 10"},
      {{.restarts = 1}, ""},
      {{.restarts = 0}, "restarts: 1, expected 0"},
  };
  for (const auto& c : kCases) {
    const ChaosReport report = WorkOutCosts(Read(kKilled), c.expect, {});
    EXPECT_TRUE(report.judged);
    std::vector<std::string> missed = report.faults.at(0).missed;
    missed.insert(missed.end(), report.missed.begin(), report.missed.end());
    EXPECT_EQ(report.kept(), missed.empty());
    if (*c.missed == '\0') {
      EXPECT_THAT(missed, IsEmpty());
    } else {
      EXPECT_THAT(missed, ElementsAre(HasSubstr(c.missed)));
    }
  }
}

TEST(ChaosCost, AFaultThatNeverCameMissesWhatIsExpected) {
  EXPECT_THAT(WorkOutCosts({}, {.resumed = Ms(1)}, {2}).missed,
              ElementsAre("fault 2 was never injected"));
  EXPECT_TRUE(WorkOutCosts({}, {}, {2}).kept());
}

TEST(ChaosCost, StepsThatAreNotMarkedCannotBeKept) {
  Lines lines = Read(kKilled);
  std::erase_if(lines, [](const TimelineLine& line) { return line.event == "marked"; });
  EXPECT_THAT(WorkOutCosts(lines, {.steps_lost = 1000}, {}).faults.at(0).missed,
              ElementsAre(HasSubstr("no steps were marked")));
}

// The node of the fault is no survivor: what it does later releases nobody.
TEST(ChaosCost, AKilledAgentThatComesBack) {
  const FaultCost cost = WorkOutCosts(Read(R"(
0    agent:a assignment generation=1 restart_count=0 rule=all_nodes pid=10
0    agent:b assignment generation=1 restart_count=0 rule=all_nodes pid=20
1000 chaos:b fault fault=1 occurrence=1 kind=agent_killed victim=b node=b generation=1
1002 service node_lost node=b
1002 service round_closing generation=1 trigger=node_lost
1005 agent:a group_empty generation=1 pid=10
1006 agent:a assignment generation=2 restart_count=0 rule=membership_change pid=10
1010 agent:a worker_started generation=2 pid=10
3000 chaos:b fault_over fault=1 occurrence=1 what=started_again agent_pid=30
3010 service round_closing generation=2 trigger=growth
3011 agent:a stop_begin generation=2 why=growth pid=10
3012 agent:a assignment generation=3 restart_count=0 rule=growth pid=10
3012 agent:c assignment generation=3 restart_count=0 rule=growth pid=30
3050 agent:c worker_started generation=3 pid=30
)"),
                                      {}, {})
                             .faults.at(0);
  EXPECT_EQ(cost.noticed, Ms(2));
  EXPECT_EQ(cost.released, Ms(5));
  EXPECT_EQ(cost.resumed, Ms(10));
  EXPECT_EQ(cost.over, Ms(2000));
  EXPECT_EQ(cost.rejoined, Ms(2050));
  EXPECT_EQ(cost.rule, "membership_change");
  EXPECT_EQ(cost.restarts, 0U);
}

// Alone on its node, the agent takes the service along: the job begins anew with generation 1.
TEST(ChaosCost, AJobThatBeginsAnew) {
  const FaultCost cost = WorkOutCosts(Read(R"(
0    agent:a assignment generation=1 restart_count=0 rule=all_nodes pid=10
1000 chaos:a fault fault=1 occurrence=1 kind=agent_killed victim=a node=a generation=1 step=50
2000 chaos:a fault_over fault=1 occurrence=1 agent_pid=30
2100 agent:b assignment generation=1 restart_count=0 rule=all_nodes pid=30
2110 agent:b worker_started generation=1 pid=30
2500 chaos:a marked generation=1 step=40
)"),
                                      {}, {})
                             .faults.at(0);
  EXPECT_EQ(cost.outcome, "restarted");
  EXPECT_EQ(cost.noticed, std::nullopt) << "nobody was left";
  EXPECT_EQ(cost.resumed, Ms(1110));
  EXPECT_EQ(cost.steps_lost, 10U);
}

TEST(ChaosCost, RiddenOut) {
  const std::string text = R"(
0     agent:a assignment generation=1 restart_count=0 rule=all_nodes pid=10
1000  chaos:a fault fault=1 occurrence=1 kind=agent_frozen victim=a node=a generation=1 for=1s
2000  chaos:a fault_over fault=1 occurrence=1 what=continued
)";
  const ChaosReport report = WorkOutCosts(Read(text), {.noticed = Ms(1), .steps_lost = 0}, {});
  EXPECT_EQ(report.faults.at(0).outcome, "ridden out");
  EXPECT_TRUE(report.kept());
  // What ends the generation a minute later has another cause; half a second later it hasn't.
  const ChaosReport later = WorkOutCosts(
      Read(text + "62000 service round_closing generation=1 reason=other trigger=worker_failed\n"),
      {}, {});
  EXPECT_EQ(later.faults.at(0).outcome, "ridden out");
  ASSERT_EQ(later.others.size(), 1U);
  EXPECT_EQ(later.others[0].reason, "other");
  const ChaosReport sooner = WorkOutCosts(
      Read(text + "2500 service round_closing generation=1 reason=lost trigger=node_lost\n"
                  "2500 service verdict outcome=failed rule=join_timeout\n"),
      {}, {});
  EXPECT_EQ(sooner.faults.at(0).outcome, "ended the job");
  EXPECT_EQ(sooner.faults.at(0).rule, "join_timeout");
  EXPECT_THAT(sooner.others, IsEmpty());
}

TEST(ChaosCost, OfTwoFaultsTheLaterOneEndedTheGeneration) {
  const ChaosReport report = WorkOutCosts(Read(R"(
0     agent:a assignment generation=1 restart_count=0 rule=all_nodes pid=10
3000  chaos:a fault fault=1 occurrence=1 kind=worker_stopped victim=rank_1 node=a
  generation=1 for=500ms local_rank=1 step=10
3500  chaos:a fault_over fault=1 occurrence=1
9000  chaos:a fault fault=2 occurrence=1 kind=worker_killed victim=rank_0 node=a generation=1
  local_rank=0 worker_pid=20 step=40
9001  agent:a worker_exit worker_pid=20 generation=1
9002  agent:a stop_begin generation=1 why=worker_failed
9020  agent:a assignment generation=2 restart_count=1 rule=worker_failure pid=10
9030  agent:a worker_started generation=2 pid=30
9080  agent:a marked generation=2 step=31
)"),
                                          {.resumed = absl::Seconds(5)}, {});
  EXPECT_EQ(report.faults.at(0).outcome, "ridden out");
  EXPECT_EQ(report.faults.at(0).steps_lost, std::nullopt);
  EXPECT_EQ(report.faults.at(1).outcome, "restarted");
  EXPECT_EQ(report.faults.at(1).steps_lost, 9U);
  EXPECT_EQ(report.faults.at(1).resumed, Ms(30));
  EXPECT_TRUE(report.kept());
}

TEST(ChaosCost, GrowthIsNoConsequence) {
  const ChaosReport report = WorkOutCosts(Read(R"(
0     agent:a assignment generation=1 restart_count=0 rule=all_nodes pid=10
1000  chaos:a fault fault=1 occurrence=1 kind=worker_stopped victim=rank_0 node=a
  generation=1 for=100ms local_rank=0
1001  agent:a worker_suspended local_rank=0
1100  chaos:a fault_over fault=1 occurrence=1
1500  agent:a stop_begin generation=1 why=growth
1510  agent:a assignment generation=2 restart_count=0 rule=growth pid=10
)"),
                                          {}, {});
  EXPECT_EQ(report.faults.at(0).outcome, "ridden out");
  EXPECT_EQ(report.faults.at(0).noticed, Ms(1));
  ASSERT_EQ(report.others.size(), 1U);
  EXPECT_EQ(report.others[0].rule, "growth");
}

TEST(ChaosCost, AStoppedWorkerThatNobodyMinds) {
  for (const char* rule : {"stopped", "preempted"}) {
    const std::string text = absl::StrCat(R"(
0     agent:a assignment generation=1 restart_count=0 rule=all_nodes pid=10
1000  chaos:a fault fault=1 occurrence=1 kind=worker_stopped victim=rank_0 node=a
  generation=1 local_rank=0
9000  agent:a stop_begin generation=1 why=the_agent_got_SIGINT
9001  service verdict outcome=stopped rule=)",
                                          rule, "\n");
    const ChaosReport report = WorkOutCosts(Read(text), {.resumed = Ms(1000)}, {});
    EXPECT_EQ(report.faults.at(0).outcome, "not over") << rule;
    EXPECT_EQ(report.faults.at(0).released, std::nullopt) << rule;
    EXPECT_THAT(report.others, IsEmpty()) << rule;
    EXPECT_FALSE(report.kept()) << rule;
  }
}

TEST(ChaosText, ShowsAllOfIt) {
  const ChaosPlan plan{.seed = 7,
                       .faults = {{.victim = {.rank = 2}, .trigger = {.at = absl::Seconds(1)}},
                                  {.kind = FaultKind::kNetworkCut,
                                   .line = 9,
                                   .victim = {.host = "c"},
                                   .trigger = {.at = absl::Seconds(9)},
                                   .lasts = absl::Seconds(2)}}};
  ChaosReport report = WorkOutCosts(Read(kKilled), {.noticed = Ms(0.5)}, {});
  const std::string text = ChaosText(report, plan, "plan.yaml", {1});
  for (const char* words :
       {"ddprun: chaos: 1 injected, 2 planned in plan.yaml, seed 7", "worker_killed rank_2",
        "1.0 ms", "7.0 ms", "25.0 ms", "200.0 ms", "  11  ", "restarted: worker_failure",
        "not injected here: 2 (line 9), network_cut for 2s, node c, at 9s",
        "in all: 200.0 ms of recovery, 11 marked steps lost, 1 restart charged; the job succeeded",
        "MISSED by fault 1: noticed"}) {
    EXPECT_THAT(text, HasSubstr(words));
  }
}

}  // namespace
}  // namespace ddprun::launcher
