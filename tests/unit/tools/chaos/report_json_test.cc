#include "tools/chaos/chaos_command.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace ddprun::launcher {
namespace {

TEST(ChaosJson, HasItAll) {
  ChaosReport report;
  report.judged = true;
  report.faults = {{.fault = 1,
                    .kind = "worker_killed",
                    .victim = "\xff",
                    .at = Instant::FromNanoseconds(2'000'000'000),
                    .noticed = absl::Milliseconds(1.5),
                    .steps_lost = 3,
                    .missed = {"resumed"}}};
  report.others = {{.generation = 4, .reason = "why"}};
  const ChaosPlan plan{.seed = 9, .faults = {{}, {.kind = FaultKind::kServiceKilled, .line = 5}}};
  const nlohmann::json json = nlohmann::json::parse(ChaosJson(report, plan, {1}));
  const nlohmann::json& fault = json.at("faults").at(0);
  EXPECT_EQ(fault.at("noticed_ms"), 1.5);
  EXPECT_EQ(fault.at("after_s"), 2.0);
  EXPECT_TRUE(fault.at("resumed_ms").is_null());
  EXPECT_EQ(fault.at("steps_lost"), 3);
  EXPECT_TRUE(fault.at("restarts").is_null());
  EXPECT_EQ(json.at("not_injected").at(0).at("line"), 5);
  EXPECT_EQ(json.at("beside_the_plan").at(0).at("generation"), 4);
  EXPECT_EQ(json.at("seed"), 9);
  EXPECT_EQ(json.at("kept"), false);
}

}  // namespace
}  // namespace ddprun::launcher
