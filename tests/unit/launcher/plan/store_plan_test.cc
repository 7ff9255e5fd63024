#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(StorePlan, WorkerRankZeroHostsTheStoreOnRequest) {  // 52
  const auto plan = [](const char* value) {
    return PlanOf("train.py", {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", value}});
  };
  EXPECT_TRUE(PlanOf("train.py").agent_store);
  EXPECT_FALSE(plan("1").agent_store);
  for (const char* other : {"0", "", "true"}) EXPECT_TRUE(plan(other).agent_store) << other;
}

// As torchrun: the endpoint is where the master is.
TEST(StorePlan, PortOfTheServiceIsTheMasters) {
  const std::string base = "--nnodes 2 --node_rank 0 --rdzv_endpoint host0:5000 --master_port ";
  const CommandLine same = Parse(Words(base + "5000 train.py"));
  EXPECT_TRUE(PlanOf(same).endpoint.has_store);
  EXPECT_EQ(PlanOf(same).master_port, 5000);
  EXPECT_THAT(same.warnings, ElementsAre());
  const CommandLine other = Parse(Words(base + "5001 train.py"));
  EXPECT_TRUE(PlanOf(other).endpoint.has_store);
  EXPECT_EQ(PlanOf(other).master_port, 5000);
  EXPECT_THAT(other.warnings, ElementsAre(HasSubstr("--master_port 5001 is ignored")));
}

// Worker rank 0 listens on the master's port by itself; the service has the next one.
TEST(StorePlan, AStoreOfTheWorkersHasItsPortAlone) {
  const LaunchPlan plan = PlanOf("--nnodes 2 --master_addr host0 --master_port 1234 train.py",
                                 {{"TORCH_DISABLE_SHARE_RDZV_TCP_STORE", "1"}});
  EXPECT_EQ(plan.endpoint.port, 1235);
  EXPECT_FALSE(plan.endpoint.has_store);
  EXPECT_EQ(plan.master_port, 1234);
}

TEST(StorePlan, AServiceOfAnotherProgramHasNoStore) {
  const std::string base = "--nnodes 2 --node_rank 0 --master_addr host0 --master_port 1234 ";
  const CommandLine parsed = Parse(Words(base + "--rdzv_conf is_host=0 train.py"));
  EXPECT_FALSE(PlanOf(parsed).endpoint.has_store);
  EXPECT_EQ(PlanOf(parsed).master_port, std::nullopt);
  EXPECT_THAT(parsed.warnings,
              ElementsAre(HasSubstr("--master_port 1234 is where the rendezvous")));
}

// One node, and no endpoint: the agent has the store, the service a unix socket.
TEST(StorePlan, OneNodesStoreIsTheAgents) {
  const LaunchPlan plan =
      PlanOf("--nnodes 1 --node_rank 0 --master_addr h --master_port 1234 train.py");
  EXPECT_EQ(plan.endpoint.kind, EndpointPlan::Kind::kUnix);
  EXPECT_FALSE(plan.endpoint.has_store);
  EXPECT_EQ(plan.master_port, 1234);
}

}  // namespace
}  // namespace ddprun::launcher
