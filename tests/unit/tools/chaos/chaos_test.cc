// ddprun chaos: its words, and the plan that it reads (docs/CHAOS.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/unit/launcher/cli/fake_host.h"
#include "tools/chaos/chaos_plan_file.h"
#include "tools/chaos/core/chaos_text.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

ChaosPlan ReadGood(const std::string& text) {
  absl::StatusOr<ChaosPlan> plan = ReadChaosPlan("p.yaml", text);
  EXPECT_TRUE(plan.ok()) << plan.status();
  return plan.ok() ? *plan : ChaosPlan();
}

TEST(ChaosPlanFile, EveryFaultInOneLine) {
  const struct {
    const char* fault;
    const char* text;
  } kCases[] = {
      {"{fault: worker_killed, worker: 1, step: 100}",
       "worker_killed by SIGKILL, worker 1, at step 100"},
      {"{fault: worker_killed, worker: random, signal: SEGV, moment: saving, times: 3}",
       "worker_killed by SIGSEGV, a random worker, while saving, 3 times"},
      {"{fault: worker_killed, worker: 0, signal: 6, step: 10, every: 50, times: 4}",
       "worker_killed by SIGABRT, worker 0, at step 10, every 50 steps, 4 times"},
      {"{fault: worker_stopped, worker: 2, at: 30s}", "worker_stopped, worker 2, at 30s"},
      {"{fault: worker_stopped, worker: 2, at: 30, for: 500ms, every: 10m}",
       "worker_stopped for 500ms, worker 2, at 30s, every 10m"},
      {"{fault: agent_killed, node: 1, at: 1m, rejoin: 2s}", "agent_killed, node 1, at 1m"},
      {"{fault: agent_frozen, node: host1, for: 3s, at: 5s, since: generation, times: 2}",
       "agent_frozen for 3s, node host1, at 5s of a generation, 2 times"},
      {"{fault: service_killed, moment: running}",
       "service_killed, the node of the service, while running"},
      {"{fault: service_stalled, for: 1s, moment: starting}",
       "service_stalled for 1s, the node of the service, while starting"},
      {"{fault: network_cut, node: random, direction: in, for: 20s, at: 0s}",
       "network_cut inwards for 20s, a random worker's node, at 0"},
      {"{fault: packet_loss, node: 0, loss: 2.5%, for: 1m, at: 10s}",
       "packet_loss of 2.5% for 1m, node 0, at 10s"},
  };
  for (const auto& c : kCases) {
    const ChaosPlan plan = ReadGood(absl::StrCat("faults: [", c.fault, "]"));
    ASSERT_EQ(plan.faults.size(), 1U) << c.fault;
    EXPECT_EQ(DescribeFault(plan.faults[0]), c.text);
  }
}

TEST(ChaosPlanFile, WhatIsNotInTheLine) {
  const ChaosPlan plan = ReadGood(
      "seed: 7\n"
      "faults:\n"
      "  - fault: agent_killed\n"
      "    node: 1\n"
      "    at: 1m\n"
      "    rejoin: 2s\n"
      "expect: {noticed: 200ms, released: 1s, resumed: 5s, training: 1m, steps_lost: 0, "
      "restarts: 3}\n");
  EXPECT_EQ(plan.seed, 7U);
  EXPECT_EQ(plan.faults.at(0).line, 3);
  EXPECT_EQ(plan.faults.at(0).rejoin, absl::Seconds(2));
  EXPECT_EQ(plan.expect.noticed, absl::Milliseconds(200));
  EXPECT_EQ(plan.expect.released, absl::Seconds(1));
  EXPECT_EQ(plan.expect.resumed, absl::Seconds(5));
  EXPECT_EQ(plan.expect.training, absl::Minutes(1));
  EXPECT_EQ(plan.expect.steps_lost, 0U);
  EXPECT_EQ(plan.expect.restarts, 3U);
  EXPECT_FALSE(ReadGood("faults: []").expect.any());
}

TEST(ChaosPlanFile, Refusals) {
  const struct {
    const char* text;
    const char* error;
  } kCases[] = {
      {"", "p.yaml:1: a plan has the keys faults, seed and expect"},
      {"seed: 1", "p.yaml:1: the plan has no key faults"},
      {"fault: []", "p.yaml:1: fault is no key of a plan; did you mean faults?"},
      {"faults: 3", "p.yaml:1: faults: must be a list"},
      {"faults:\n  - killed", "p.yaml:2: a fault is a mapping"},
      {"faults:\n  - worker: 1",
       "p.yaml:2: the fault has no key fault; it is one of worker_killed"},
      {"faults:\n  - fault: worker_kiled\n", "p.yaml:2: fault: 'worker_kiled' is none of"},
      {"faults:\n  - fault: worker_kiled\n", "did you mean worker_killed?"},
      {"faults:\n  - fault: worker_killed\n    wroker: 1",
       "p.yaml:3: wroker is no key of "
       "worker_killed; did you mean worker?"},
      {"faults: [{fault: worker_killed, node: 1, at: 1s}]",
       "node is no key of worker_killed; it has"},
      {"faults: [{fault: agent_killed, worker: 1, at: 1s}]", "worker is no key of agent_killed"},
      {"faults: [{fault: worker_killed, worker: 1, for: 1s, at: 1s}]",
       "for is no key of worker_killed"},
      {"faults: [{fault: worker_stopped, worker: 1, signal: INT, at: 1s}]",
       "signal is no key of worker_stopped"},
      {"faults: [{fault: worker_killed, at: 1s}]", "worker_killed needs worker"},
      {"faults: [{fault: worker_killed, worker: -1, at: 1s}]", "worker: '-1' is no whole number"},
      {"faults: [{fault: worker_killed, worker: [1], at: 1s}]",
       "worker: must be one text or number"},
      {"faults: [{fault: network_cut, at: 1s, for: 1s}]", "network_cut needs node"},
      {"faults: [{fault: network_cut, node: 1, at: 1s}]", "network_cut needs for"},
      {"faults: [{fault: network_cut, node: 1, at: 1s, for: 1h}]",
       "for: '1h' is not from 1ms to 10m"},
      {"faults: [{fault: network_cut, node: 1, at: 1s, for: 1s, direction: up}]",
       "direction: 'up' is none of both, in, out"},
      {"faults: [{fault: packet_loss, node: 1, at: 1s, for: 1s}]", "packet_loss needs loss"},
      {"faults: [{fault: packet_loss, node: 1, at: 1s, for: 1s, loss: 5}]",
       "loss: '5' is no share"},
      {"faults: [{fault: packet_loss, node: 1, at: 1s, for: 1s, loss: nan%}]", "is no share"},
      {"faults: [{fault: agent_frozen, node: 99999, at: 1s, for: 1s}]",
       "node: '99999' is no whole number from 0 to 16383"},
      {"faults: [{fault: service_stalled, at: 1s}]", "service_stalled needs for"},
      {"faults: [{fault: service_killed}]", "a fault needs one of at (a time), step and moment"},
      {"faults: [{fault: service_killed, at: 1s, step: 3}]", "a fault needs one of"},
      {"faults: [{fault: service_killed, at: soon}]", "at: 'soon' is no time; give it as 500ms"},
      {"faults: [{fault: service_killed, step: 3, since: job}]", "since: belongs to at"},
      {"faults: [{fault: service_killed, at: 3, since: genration}]", "did you mean generation?"},
      {"faults: [{fault: service_killed, moment: never}]", "moment: 'never' is none of starting"},
      {"faults: [{fault: service_killed, moment: saving, every: 1s}]",
       "every: comes once in each generation already"},
      {"faults: [{fault: service_killed, at: 1s, times: 2}]", "times: needs every"},
      {"faults: [{fault: service_killed, at: 1s, every: 1ms}]", "every: '1ms' is not from 100ms"},
      {"faults: [{fault: service_killed, step: 1, every: 2s}]", "every: '2s' is no whole number"},
      {"faults: [{fault: service_killed, at: 1s, every: 1s, times: 0}]", "times: '0' is no whole"},
      {"faults: [{fault: worker_killed, worker: 1, at: 1s, signal: STOP}]",
       "signal: 'STOP' doesn't kill"},
      {"faults: [{fault: worker_killed, worker: 1, at: 1s, signal: HELLO}]", "doesn't kill"},
      {"faults: []\nexpect: 3", "p.yaml:2: expect: must be a mapping"},
      {"faults: []\nexpect: {notice: 1s}", "notice is no key of expect; did you mean noticed?"},
      {"faults: []\nexpect: {steps_lost: few}", "steps_lost: 'few' is no whole number"},
      {"faults: []\nseed: -1", "p.yaml:2: seed: '-1' is no whole number"},
      {"faults: [\n{", "p.yaml:2: "},
      {"faults: []\nfaults: []", "p.yaml:2: the key 'faults' is there twice"},
  };
  for (const auto& c : kCases) {
    const absl::StatusOr<ChaosPlan> plan = ReadChaosPlan("p.yaml", c.text);
    ASSERT_FALSE(plan.ok()) << c.text;
    EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument) << c.text;
    EXPECT_THAT(std::string(plan.status().message()), HasSubstr(c.error)) << c.text;
  }
}

TEST(ChaosPlanFile, NotTooMany) {
  std::string text = "faults:\n";
  for (size_t i = 0; i <= kFaultsMax; ++i) text += "  - {fault: service_killed, at: 1s}\n";
  EXPECT_FALSE(ReadChaosPlan("p", text).ok());
}

FakeHost WithPlan(const std::string& text = "faults: []") {
  FakeHost host;
  host.files["plan.yaml"] = text;
  return host;
}

ChaosOptions ChaosOf(const std::string& line) {
  const CommandLine parsed = Parse(Words(line), {}, WithPlan());
  const auto* chaos = std::get_if<ChaosOptions>(&parsed.command);
  if (chaos == nullptr) ADD_FAILURE() << line << ": " << ExitOf(parsed).text;
  return chaos == nullptr ? ChaosOptions() : *chaos;
}

TEST(ChaosCommand, TheJobsWordsAreLeftAlone) {
  const ChaosOptions chaos = ChaosOf(
      "chaos --chaos_report r.json plan.yaml --nproc_per_node 2 --event_log e train.py --check");
  EXPECT_EQ(chaos.report_file, "r.json");
  EXPECT_FALSE(chaos.check);
  EXPECT_THAT(chaos.job,
              ElementsAre("--nproc_per_node", "2", "--event_log", "e", "train.py", "--check"));
  EXPECT_EQ(chaos.launch.worker_count, 2U);
  EXPECT_EQ(chaos.launch.event_log, "e");
}

TEST(ChaosCommand, ChecksAndReports) {
  EXPECT_TRUE(ChaosOf("chaos --check plan.yaml train.py").check);
  const ChaosOptions chaos = ChaosOf("chaos --from-logs a,b plan.yaml");
  EXPECT_THAT(chaos.from_logs, ElementsAre("a", "b"));
  EXPECT_THAT(chaos.job, IsEmpty());
}

TEST(ChaosCommand, Refusals) {
  const FakeHost host = WithPlan("faults: [{fault: worker_killed}]");
  const Refused kWords[] = {
      {"chaos", 2, "chaos needs a plan"},
      {"chaos nowhere.yaml train.py", 1, "can't read the plan 'nowhere.yaml'"},
      {"chaos plan.yaml train.py", 2, "plan.yaml:1: worker_killed needs worker"},
      {"chaos --chaos_reprot r plan.yaml train.py", 2, "did you mean --chaos-report?"},
  };
  for (const Refused& c : kWords) ExpectRefused(c, {}, host);
  // The job is checked as without chaos.
  const Refused kJobs[] = {
      {"chaos plan.yaml", 2, "script"},
      {"chaos plan.yaml nothere.py", 1, "nothere.py"},
      {"chaos plan.yaml --nproc_per_node x train.py", 1, "--nproc_per_node 'x'"},
      {"chaos --from_logs a plan.yaml train.py", 2, "--from_logs runs no job; drop 'train.py'"},
      {"chaos --from_logs , plan.yaml", 2, "--from_logs: give at least one file"},
  };
  for (const Refused& c : kJobs) ExpectRefused(c, {}, WithPlan());
  ExpectRefused({"chaos plan.yaml --nnodes 1:2 --rdzv_endpoint h train.py", 1,
                 "line 1 of the plan, agent_killed: the job has no node 2; with its --nnodes they "
                 "are 0 to 1"},
                {}, WithPlan("faults: [{fault: agent_killed, node: 2, at: 1s}]"));
}

TEST(ChaosCommand, Help) {
  const ExitNow exit = ExitOf(Parse({"chaos", "--help"}));
  EXPECT_EQ(exit.status, 0);
  EXPECT_THAT(exit.text, HasSubstr("usage: ddprun chaos [options] PLAN"));
  EXPECT_THAT(exit.text, HasSubstr("--from-logs"));
}

}  // namespace
}  // namespace ddprun::launcher
