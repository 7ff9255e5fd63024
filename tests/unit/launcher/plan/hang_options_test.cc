// The options about workers that hang or are stopped.
#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

TEST(HangOptions, Defaults) {
  const LaunchPlan plan = PlanOf("train.py");
  EXPECT_TRUE(plan.hangs.watch_marks);
  EXPECT_TRUE(plan.count_steps);
  EXPECT_EQ(plan.hangs.first_step_timeout, absl::Seconds(600));
  EXPECT_EQ(plan.hangs.hang_timeout, absl::ZeroDuration());
  EXPECT_EQ(plan.on_hang, OnHang::kRestart);
  EXPECT_FALSE(plan.restart_stopped);
}

TEST(HangOptions, Values) {
  const LaunchPlan plan = PlanOf(
      "--hang_detection off --first_step_timeout 30m --hang-timeout 90 --on_hang report "
      "--on-stopped restart --mark off train.py");
  EXPECT_FALSE(plan.count_steps);
  EXPECT_FALSE(plan.hangs.watch_marks);
  EXPECT_EQ(plan.hangs.first_step_timeout, absl::Minutes(30));
  EXPECT_EQ(plan.hangs.hang_timeout, absl::Seconds(90));
  EXPECT_EQ(plan.on_hang, OnHang::kReport);
  EXPECT_TRUE(plan.restart_stopped);
  EXPECT_EQ(PlanOf("train.py", {{"PET_HANG_TIMEOUT", "2m"}}).hangs.hang_timeout, absl::Minutes(2));
  EXPECT_EQ(PlanOf("train.py", {{"PET_HANG_TIMEOUT", ""}}).hangs.hang_timeout,
            absl::ZeroDuration());
}

TEST(HangOptions, FromAFile) {
  FakeHost host;
  host.paths["job.yaml"] = Host::PathKind::kFile;
  host.files["job.yaml"] = "hang_detection: off\nhang_timeout: 2m\non_hang: report\n";
  const LaunchPlan plan = PlanOf("--config job.yaml train.py", {}, host);
  EXPECT_FALSE(plan.hangs.watch_marks);
  EXPECT_EQ(plan.hangs.hang_timeout, absl::Minutes(2));
  EXPECT_EQ(plan.on_hang, OnHang::kReport);
}

TEST(HangOptions, Refusals) {
  const Refused kCases[] = {
      {"--mark on train.py", 2, "--mark 'on': is neither auto nor off"},
      {"--hang_detection maybe train.py", 2, "--hang_detection 'maybe': is neither on nor off"},
      {"--first_step_timeout 0.1 train.py", 1, "--first_step_timeout '0.1': must be from 500ms"},
      {"--hang_timeout 0 train.py", 1, "--hang_timeout '0': must be from 500ms"},
      {"--hang_timeout soon train.py", 2, "--hang_timeout 'soon'"},
      {"--on_hang fail train.py", 2, "--on_hang 'fail': is neither restart nor report"},
      {"--on_stopped cont train.py", 2, "--on_stopped 'cont': is neither warn nor restart"},
  };
  for (const Refused& c : kCases) ExpectRefused(c);
}

}  // namespace
}  // namespace ddprun::launcher
