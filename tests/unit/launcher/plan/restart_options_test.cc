// The options of "Restarts" (docs/RECOVERY.md): what the job's rules become of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/unit/launcher/cli/fake_host.h"

namespace ddprun::launcher {
namespace {

using rendezvous::RestartRules;

TEST(RestartOptions, DefaultsAreTheRules) {
  const LaunchPlan plan = PlanOf("train.py");
  EXPECT_EQ(plan.job.max_restarts, 0U);
  EXPECT_EQ(plan.job.restart, RestartRules{});
  // Nothing but the number of restarts ends a job that fails, unless a limit is given.
  EXPECT_EQ(plan.job.restart.crash_loop, 0U);
  EXPECT_EQ(plan.job.restart.give_up_after, 0U);
  EXPECT_EQ(plan.job.restart.max_membership_changes, rendezvous::kNoLimit);
}

TEST(RestartOptions, EachHasItsField) {
  const LaunchPlan plan = PlanOf(
      "--max-restarts 9 --membership-changes 8 --restart-window 6h --restart-backoff 500ms "
      "--crash-loop 7 --give-up-after 5 --quarantine-after 4 --quarantine-time 30 train.py");
  const RestartRules expected = {.max_membership_changes = 8,
                                 .restart_window = absl::Hours(6),
                                 .backoff_max = absl::Milliseconds(500),
                                 .crash_loop = 7,
                                 .give_up_after = 5,
                                 .quarantine_after = 4,
                                 .quarantine_time = absl::Seconds(30),
                                 .quarantine_shrinks = true};
  EXPECT_EQ(plan.job.max_restarts, 9U);
  EXPECT_EQ(plan.job.restart, expected);
}

TEST(RestartOptions, ZeroSwitchesOff) {
  const RestartRules rules =
      PlanOf(
          "--membership-changes 0 --restart-window 0 --restart-backoff 0 --crash-loop 0 "
          "--give-up-after 0 --quarantine-after 0 train.py")
          .job.restart;
  EXPECT_EQ(rules.max_membership_changes, 0U);
  EXPECT_EQ(rules.restart_window, absl::ZeroDuration());
  EXPECT_EQ(rules.backoff_max, absl::ZeroDuration());
  EXPECT_EQ(rules.crash_loop, 0U);
  EXPECT_EQ(rules.give_up_after, 0U);
  EXPECT_EQ(rules.quarantine_after, 0U);
}

// torchrun's unique prefixes of --max-restarts stay unique.
TEST(RestartOptions, TorchrunsShortFormIsKept) {
  EXPECT_EQ(PlanOf("--max 2 train.py").job.max_restarts, 2U);
}

TEST(RestartOptions, Refusals) {
  const Refused kCases[] = {
      {"--membership-changes=-1 train.py", 1, "--membership-changes '-1': must be from 0"},
      {"--membership-changes=x train.py", 2, "--membership-changes 'x': is not a whole number"},
      {"--restart-window=x train.py", 2, "--restart-window 'x': is not a number of seconds"},
      {"--restart-backoff=-1 train.py", 1, "--restart-backoff '-1'"},
      {"--restart-backoff=8d train.py", 2, "--restart-backoff '8d'"},
      {"--crash-loop=1.5 train.py", 2, "--crash-loop '1.5': is not a whole number"},
      {"--give-up-after= train.py", 2, "--give-up-after ''"},
      {"--quarantine-after=1001 train.py", 1, "--quarantine-after '1001': must be from 0 to 1000"},
      {"--quarantine-time=0 train.py", 1, "--quarantine-time '0'"},
  };
  for (const Refused& c : kCases) ExpectRefused(c);
}

}  // namespace
}  // namespace ddprun::launcher
