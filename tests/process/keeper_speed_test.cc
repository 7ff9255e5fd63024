// How fast starts, ends and sweeps are. The bounds are the promises of the design; the usual
// figures are printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <csignal>
#include <iostream>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "tests/process/process_testing.h"

namespace ddprun::testing {
namespace {

// Sorts and prints the samples, and returns the lower quartile.
absl::Duration FastQuarter(const std::string& what, std::vector<absl::Duration> samples) {
  std::sort(samples.begin(), samples.end());
  const absl::Duration quarter = samples[samples.size() / 4];
  std::cout << what << ": quarter " << quarter << ", median " << samples[samples.size() / 2]
            << ", worst " << samples.back() << " of " << samples.size() << "\n";
  return quarter;
}

TEST(KeeperSpeedTest, StartsAreFast) {
  KeeperUnderTest keeper;
  std::vector<absl::Duration> samples;
  for (uint32_t rank = 0; rank < 30; ++rank) {
    const Instant sent = MonotonicNow();
    keeper.Spawn(1, rank, {"/bin/true"});
    keeper.RunUntilStarted(1, rank);
    samples.push_back(keeper.started_at[{1, rank}] - sent);
    keeper.RunUntilExited(1, rank);
  }
  EXPECT_LT(FastQuarter("spawn -> started", samples), absl::Milliseconds(50));
}

TEST(KeeperSpeedTest, AKilledWorkerIsNoticedWithin10Milliseconds) {
  KeeperUnderTest keeper;
  std::vector<absl::Duration> seen;
  std::vector<absl::Duration> told;
  for (uint32_t rank = 0; rank < 20; ++rank) {
    keeper.Spawn(1, rank, Misbehave({"live"})).ReadyPid();
    const pid_t pid = keeper.RunUntilStarted(1, rank);
    const Instant killed = MonotonicNow();
    kill(pid, SIGKILL);
    seen.push_back(keeper.RunUntilExited(1, rank).seen - killed);
    told.push_back(MonotonicNow() - killed);
  }
  EXPECT_LT(FastQuarter("SIGKILL -> seen by the keeper", seen), absl::Milliseconds(10));
  EXPECT_LT(FastQuarter("SIGKILL -> reported to the agent", told), absl::Milliseconds(10));
}

TEST(KeeperSpeedTest, AnExitIsNoticedWithin10Milliseconds) {
  KeeperUnderTest keeper;
  std::vector<absl::Duration> seen;
  for (uint32_t rank = 0; rank < 20; ++rank) {
    PipeReader& out = keeper.Spawn(1, rank, Misbehave({"last-breath"}));
    const Instant at = keeper.RunUntilExited(1, rank).seen;
    int64_t last = 0;
    ASSERT_TRUE(absl::SimpleAtoi(out.Line().value_or(""), &last));
    seen.push_back(at - Instant::FromNanoseconds(last));
  }
  EXPECT_LT(FastQuarter("last instruction -> seen by the keeper", seen), absl::Milliseconds(10));
}

TEST(KeeperSpeedTest, SweepsAreFast) {
  KeeperUnderTest keeper;
  std::vector<absl::Duration> samples;
  for (uint64_t generation = 1; generation <= 10; ++generation) {
    for (uint32_t rank = 0; rank < 4; ++rank) {
      PipeReader& out = keeper.Spawn(generation, rank, Misbehave({"daemon-parent"}));
      out.ReadyPid();
      out.ReadyPid();
    }
    const Instant asked = MonotonicNow();
    ASSERT_TRUE(keeper.Sweep(generation).has_value());
    samples.push_back(MonotonicNow() - asked);
  }
  EXPECT_LT(FastQuarter("sweep of 4 workers with a daemon each", samples), absl::Milliseconds(100));
}

TEST(KeeperSpeedTest, AnAgentsEndTakesTheTreeWithIt) {
  std::vector<absl::Duration> samples;
  for (int round = 0; round < 5; ++round) {
    Program agent = StartProgram(
        {HelperPath("keeper_host"), "120000", "daemon-parent", "daemon-parent", "chain 3"});
    ASSERT_TRUE(agent.out.Line().has_value());  // the keeper's pid
    for (int i = 0; i < 8; ++i) agent.out.ReadyPid();
    const Instant killed = MonotonicNow();
    kill(agent.pid, SIGKILL);
    ASSERT_TRUE(agent.out.EndsWithin());
    samples.push_back(MonotonicNow() - killed);
    ReapAllChildren();
  }
  EXPECT_LT(FastQuarter("SIGKILL of the agent -> nothing left", samples), absl::Milliseconds(200));
}

}  // namespace
}  // namespace ddprun::testing
