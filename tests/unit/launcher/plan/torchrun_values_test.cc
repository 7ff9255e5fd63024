// Values that torchrun takes although they are beyond what ddprun's core or messages hold.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using ::testing::Each;

TEST(Plan, LongNamesThatTorchrunDoesNotKnowAreRefused) {
  const std::string long_name(257, 'x');
  EXPECT_EQ(ExitOf(Parse({"--token", long_name, "train.py"})).status, 1);
  EXPECT_EQ(ExitOf(Parse({"--master_addr", long_name, "train.py"})).status, 1);
  EXPECT_EQ(ExitOf(Parse({"--token", "\xff", "train.py"})).status, 1);
  PlanOf(Parse({"--token", "größe", "train.py"}));
}

// Workers get every name byte for byte, and messages one that they can hold.
TEST(Plan, NamesOfAnyBytes) {
  for (const std::string& name : {std::string("größe"), std::string(256, 'x')}) {
    const LaunchPlan plan = PlanOf(Parse({"--role", name, "--rdzv_id", name, "train.py"}));
    EXPECT_THAT((std::vector{plan.role, plan.given_role, plan.job.run_id, plan.given_run_id}),
                Each(name));
  }
  std::set<std::string> in_messages;
  for (const std::string& name : {std::string("a\xff"), std::string("a\xfe"), std::string("a\nb"),
                                  std::string(257, 'x'), std::string(258, 'x')}) {
    const LaunchPlan plan = PlanOf(Parse({"--role", name, "--rdzv_id", name, "train.py"}));
    EXPECT_EQ(plan.given_role, name);
    EXPECT_EQ(plan.given_run_id, name);
    EXPECT_EQ(plan.role, plan.job.run_id);
    EXPECT_LE(plan.role.size(), 256U);
    EXPECT_TRUE(std::all_of(plan.role.begin(), plan.role.end(),
                            [](unsigned char c) { return c >= ' ' && c != 0x7f; }));
    in_messages.insert(plan.role);
  }
  EXPECT_EQ(in_messages.size(), 5U);
}

// Python's numbers have no bounds.
TEST(Plan, LargeNumbersAreCutOff) {
  const LaunchPlan plan = PlanOf(
      "--nnodes 1:100000 --max_restarts 10000000000 --monitor_interval 1e12 --rdzv_backend c10d "
      "--rdzv_endpoint h --rdzv_conf timeout=1e9,read_timeout=169h,last_call_timeout=1e300 "
      "train.py");
  EXPECT_EQ(plan.job.nodes_min, 1U);
  EXPECT_EQ(plan.job.nodes_max, 16384U);
  EXPECT_EQ(plan.job.max_restarts, 2147483647U);
  EXPECT_EQ(plan.job.join_timeout, absl::Hours(168));
  EXPECT_EQ(plan.job.last_call_timeout, absl::Hours(168));
  EXPECT_EQ(plan.service.reach, absl::Hours(168));
}

// torchrun ignores it. A launch without what the user has configured, as TLS, would be worse.
TEST(Variables, AWrongOneOfOursIsAnError) {
  EXPECT_EQ(ExitOf(Parse({"train.py"}, {{"PET_LEASE", "mine"}})).status, 2);
  EXPECT_EQ(ExitOf(Parse({"train.py"}, {{"PET_TOKEN_FILE", "nowhere"}})).status, 1);
}

}  // namespace
}  // namespace ddprun::launcher
