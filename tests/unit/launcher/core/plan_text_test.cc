#include "launcher/core/plan_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(PlanText, HasTorchrunsNamesAndNoSecret) {
  LaunchPlan plan;
  plan.job.run_id = "job7";
  plan.worker_count = 3;
  plan.token = "s3cret";
  plan.entry_point = "train.py";
  plan.rdzv_backend = "c10d";
  plan.endpoint.kind = EndpointPlan::Kind::kTcp;
  plan.endpoint.host = "host0";
  plan.endpoint.port = 29400;
  const std::string text = PlanText(plan);
  for (const char* line :
       {"nproc_per_node       : 3", "run_id               : job7", "rdzv_backend         : c10d",
        "rdzv_endpoint        : host0:29400", "rdzv_configs         : join_timeout=10m",
        "max_restarts         : 0", "signals_to_handle    : SIGTERM,SIGINT,SIGHUP,SIGQUIT"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, Not(HasSubstr("s3cret")));
}

TEST(PlanText, ShowsWhereWorkersRun) {
  LaunchPlan plan;
  EXPECT_THAT(PlanText(plan), HasSubstr("workers' CPUs        : not bound"));
  plan.cpu_binding = CpuBinding::kCores;
  plan.worker_cpus = {{0, 1, 4}, {2, 3}};
  const std::string text = PlanText(plan);
  EXPECT_THAT(text, HasSubstr("numa_binding         : none"));
  EXPECT_THAT(text, HasSubstr("cpu_binding          : cores"));
  EXPECT_THAT(text, HasSubstr("workers' CPUs        : 0 to 0-1,4; 1 to 2-3"));
}

}  // namespace
}  // namespace ddprun::launcher
