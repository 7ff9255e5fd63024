#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tools/chaos/network_fault.h"

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kDropsIn[] = "hook input priority -300; iifname != \"lo\" drop;";
constexpr char kDropsOut[] = "hook output priority -300; oifname != \"lo\" drop;";

TEST(NetworkRules, Directions) {
  const FaultPlan both{.kind = FaultKind::kNetworkCut};
  EXPECT_THAT(NetworkRules("t", both), HasSubstr("table inet t {"));
  EXPECT_THAT(NetworkRules("t", both), HasSubstr(kDropsIn));
  EXPECT_THAT(NetworkRules("t", both), HasSubstr(kDropsOut));
  const FaultPlan in{.kind = FaultKind::kNetworkCut, .direction = Direction::kIn};
  EXPECT_THAT(NetworkRules("t", in), HasSubstr(kDropsIn));
  EXPECT_THAT(NetworkRules("t", in), Not(HasSubstr("output")));
  const FaultPlan out{.kind = FaultKind::kNetworkCut, .direction = Direction::kOut};
  EXPECT_THAT(NetworkRules("t", out), Not(HasSubstr("input")));
  EXPECT_THAT(NetworkRules("t", out), HasSubstr(kDropsOut));
}

TEST(NetworkRules, Loss) {
  const auto rules = [](double percent) {
    return NetworkRules("t", {.kind = FaultKind::kPacketLoss, .loss_percent = percent});
  };
  EXPECT_THAT(rules(2.5), HasSubstr("numgen random mod 1000 < 25 drop"));
  EXPECT_THAT(rules(0.1), HasSubstr("numgen random mod 1000 < 1 drop"));
  EXPECT_THAT(rules(100), Not(HasSubstr("numgen")));
}

}  // namespace
}  // namespace ddprun::launcher
