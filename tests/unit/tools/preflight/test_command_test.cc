// ddprun test, and --preflight.
#include "tools/preflight/test_command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

LaunchPlan TestPlanOf(const std::string& line, const Variables& variables = {}) {
  const CommandLine parsed = Parse(Words(line), variables);
  const auto* plan = std::get_if<LaunchPlan>(&parsed.command);
  if (plan == nullptr) ADD_FAILURE() << line << ": " << ExitOf(parsed).text;
  return plan == nullptr ? LaunchPlan() : *plan;
}

TEST(TestCommand, IsAJobOfThisProgram) {
  const LaunchPlan plan = TestPlanOf("test --nnodes 2 --rdzv_endpoint host0 --nproc_per_node 2");
  EXPECT_EQ(plan.preflight, Preflight::kTest);
  EXPECT_EQ(plan.job.nodes_max, 2U);
  EXPECT_EQ(plan.worker_count, 2U);
  EXPECT_EQ(plan.endpoint.host, "host0");
  EXPECT_EQ(plan.job.join_timeout, absl::Minutes(1));
  EXPECT_THAT(plan.argv, ElementsAre("/proc/self/exe", "preflight-worker", "--test",
                                     "--python=/usr/bin/python3", "--expected=2"));
  EXPECT_THAT(TestPlanOf("test --standalone --json").argv, Contains("--json"));
  EXPECT_THAT(TestPlanOf("test --standalone --network_only").argv,
              ElementsAre("/proc/self/exe", "preflight-worker", "--test", "--network_only"));
}

TEST(TestCommand, TakesTheRealRunsOptionsAndScript) {
  const LaunchPlan plan = TestPlanOf(
      "test --standalone --max_restarts 3 --tee 3 --log_dir logs --report_file r.json --preflight "
      "-m no.such.module --lr 0.1");
  EXPECT_EQ(plan.job.max_restarts, 0U);
  EXPECT_TRUE(plan.output.stdout_sinks.empty());
  EXPECT_EQ(plan.output.log_dir, "");
  EXPECT_EQ(plan.report_file, "");
  EXPECT_THAT(plan.argv, Not(Contains("no.such.module")));
  EXPECT_EQ(
      TestPlanOf("test --nnodes 2 --rdzv_endpoint a --rdzv_conf join_timeout=300").job.join_timeout,
      absl::Minutes(5));
  EXPECT_EQ(ExitOf(Parse(Words("test --nnodse 2"))).status, 2);
}

TEST(TestCommand, ThoseThatHaveComeAreTestedWithoutTheOthers) {
  const LaunchPlan claimed = TestPlanOf(
      "test --network_only --nnodes 3 --node_rank 2 --master_addr a --rdzv_conf join_timeout=5");
  EXPECT_EQ(claimed.job.nodes_min, 1U);
  EXPECT_EQ(claimed.job.nodes_max, 3U);
  EXPECT_EQ(claimed.job.last_call_timeout, absl::Seconds(5));
  EXPECT_THAT(claimed.argv, Contains("--expected=3"));
  EXPECT_THAT(claimed.argv, Contains("--claim=2"));
  const LaunchPlan elastic = TestPlanOf("test --network_only --nnodes 2:3 --rdzv_endpoint a");
  EXPECT_EQ(elastic.job.nodes_min, 2U);
  EXPECT_THAT(elastic.argv, Not(Contains(testing::HasSubstr("--expected"))));
}

TEST(Preflight, ComesBeforeTheCommand) {
  const LaunchPlan plan = TestPlanOf("--preflight --nnodes 2 --rdzv_endpoint a train.py --lr 0.1");
  const LaunchPlan twin = TestPlanOf("--nnodes 2 --rdzv_endpoint a train.py --lr 0.1");
  EXPECT_EQ(plan.preflight, Preflight::kBeforeRun);
  EXPECT_EQ(twin.preflight, Preflight::kNone);
  std::vector<std::string> expected = {"/proc/self/exe", "preflight-worker", "--"};
  expected.insert(expected.end(), twin.argv.begin(), twin.argv.end());
  EXPECT_EQ(plan.argv, expected);
  EXPECT_NE(plan.job.fingerprint, twin.job.fingerprint);
  EXPECT_THAT(plan.job.description, HasSubstr("with --preflight"));
  // One node has no network.
  EXPECT_EQ(TestPlanOf("--preflight train.py").preflight, Preflight::kNone);
}

const Variables kWorkersOwn = {{"LOCAL_RANK", "1"},
                               {"GROUP_RANK", "2"},
                               {"GROUP_WORLD_SIZE", "4"},
                               {"MASTER_ADDR", "10.0.0.1"},
                               {"MASTER_PORT", "29500"},
                               {"DDPRUN_GENERATION", "1"},
                               {"TORCHELASTIC_RESTART_COUNT", "0"}};

PreflightWorker PreflightWorkerOf(const std::string& line, const Variables& variables) {
  const CommandLine parsed = Parse(Words(line), variables);
  const auto* worker = std::get_if<PreflightWorker>(&parsed.command);
  if (worker == nullptr) ADD_FAILURE() << line << ": " << ExitOf(parsed).text;
  return worker == nullptr ? PreflightWorker() : *worker;
}

TEST(PreflightWorker, KnowsItsPlaceAndWhatItIsFor) {
  const PreflightWorker worker =
      PreflightWorkerOf("preflight-worker -- python -u train.py --json", kWorkersOwn);
  EXPECT_FALSE(worker.test);
  EXPECT_FALSE(worker.json);
  EXPECT_TRUE(worker.first_start);
  EXPECT_THAT(worker.command, ElementsAre("python", "-u", "train.py", "--json"));
  EXPECT_EQ(worker.local_rank, 1U);
  EXPECT_EQ(worker.node, 2U);
  EXPECT_EQ(worker.nodes, 4U);
  EXPECT_EQ(worker.master_addr, "10.0.0.1");
  EXPECT_EQ(worker.master_port, 29500);
}

TEST(PreflightWorker, IsNotTheFirstAfterARestart) {
  for (const char* name : {"DDPRUN_GENERATION", "TORCHELASTIC_RESTART_COUNT"}) {
    Variables later = kWorkersOwn;
    later[name] = "2";
    EXPECT_FALSE(PreflightWorkerOf("preflight-worker -- true", later).first_start) << name;
  }
}

TEST(PreflightWorker, IsNothingForUsers) {
  EXPECT_THAT(ExitOf(Parse(Words("preflight-worker -- true"))).text,
              HasSubstr("for the workers of ddprun test"));
  EXPECT_EQ(ExitOf(Parse(Words("preflight-worker"), kWorkersOwn)).status, 2);
}

}  // namespace
}  // namespace ddprun::launcher
