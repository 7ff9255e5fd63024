// Workers that a sweep spares, and that are kept for the next generation.
#include <gtest/gtest.h>

#include <csignal>

#include "tests/process/process_testing.h"

namespace ddprun::testing {
namespace {

TEST(KeeperKeepTest, WhoIsSparedLivesOnAndIsKept) {
  KeeperUnderTest keeper;
  keeper.Spawn(1, 0, Misbehave({"live"})).ReadyPid();
  keeper.Spawn(1, 1, Misbehave({"live"})).ReadyPid();
  const pid_t spared = keeper.RunUntilStarted(1, 0);
  const pid_t other = keeper.RunUntilStarted(1, 1);
  ASSERT_TRUE(keeper.Sweep(1, {0}).has_value());
  EXPECT_EQ(ProcessState(spared), 'S');
  EXPECT_EQ(ProcessState(other), '-');
  EXPECT_TRUE(keeper.client->Keep(2, 0).ok());
  EXPECT_EQ(keeper.RunUntilStarted(2, 0), spared);
  // The worker belongs to the new generation: signals for the old one don't reach it.
  keeper.client->Signal(1, SIGKILL, {});
  keeper.client->Signal(2, SIGTERM, {0});
  keeper.Spawn(2, 1, Misbehave({"exit"}));
  keeper.RunUntilExited(2, 1);
  EXPECT_EQ(ProcessState(spared), 'S');
  keeper.client->Signal(2, SIGTERM, {});
  EXPECT_EQ(keeper.RunUntilExited(2, 0).signal, SIGTERM);
  EXPECT_EQ(keeper.Sweep(2), 0U);
}

TEST(KeeperKeepTest, TwinWhoIsNotSparedDies) {
  KeeperUnderTest keeper;
  keeper.Spawn(1, 0, Misbehave({"live"})).ReadyPid();
  const pid_t pid = keeper.RunUntilStarted(1, 0);
  ASSERT_TRUE(keeper.Sweep(1).has_value());
  EXPECT_EQ(ProcessState(pid), '-');
}

TEST(KeeperKeepTest, WhatTheyHaveLostOfTheirTreesStaysToo) {
  KeeperUnderTest keeper;
  PipeReader& out = keeper.Spawn(1, 0, Misbehave({"daemon-parent"}));
  const pid_t daemon = out.ReadyPid();
  out.ReadyPid();
  PipeReader& swept_out = keeper.Spawn(1, 1, Misbehave({"daemon-parent"}));
  const pid_t swept = swept_out.ReadyPid();
  swept_out.ReadyPid();
  ASSERT_TRUE(keeper.Sweep(1, {0}).has_value());
  EXPECT_EQ(ProcessState(daemon), 'S');
  EXPECT_EQ(ProcessState(swept), '-');
  EXPECT_TRUE(keeper.client->Keep(2, 0).ok());
  keeper.RunUntilStarted(2, 0);
  // The end of another worker doesn't take the daemon away, the next sweep does.
  keeper.Spawn(2, 1, Misbehave({"daemon"}));
  keeper.RunUntilExited(2, 1);
  keeper.Spawn(2, 2, Misbehave({"exit"}));
  keeper.RunUntilExited(2, 2);
  EXPECT_EQ(ProcessState(daemon), 'S');
  ASSERT_TRUE(keeper.Sweep(2).has_value());
  EXPECT_EQ(ProcessState(daemon), '-');
}

TEST(KeeperKeepTest, KeptAgainAndAgain) {
  KeeperUnderTest keeper;
  PipeReader& out = keeper.Spawn(1, 0, Misbehave({"daemon-parent"}));
  const pid_t daemon = out.ReadyPid();
  const pid_t pid = out.ReadyPid();
  for (uint64_t generation = 1; generation < 4; ++generation) {
    keeper.Spawn(generation, 1, Misbehave({"live"})).ReadyPid();
    ASSERT_TRUE(keeper.Sweep(generation, {0}).has_value());
    EXPECT_TRUE(keeper.client->Keep(generation + 1, 0).ok());
    EXPECT_EQ(keeper.RunUntilStarted(generation + 1, 0), pid);
    EXPECT_EQ(ProcessState(daemon), 'S');
  }
  // The worker's end sweeps its daemon, found by the tag with which the worker was started.
  kill(pid, SIGKILL);
  EXPECT_EQ(keeper.RunUntilExited(4, 0).swept, 1U);
  EXPECT_TRUE(out.EndsWithin());
}

TEST(KeeperKeepTest, WhoHasEndedMeanwhileCanNotBeKept) {
  KeeperUnderTest keeper;
  keeper.Spawn(1, 0, Misbehave({"live"})).ReadyPid();
  const pid_t pid = keeper.RunUntilStarted(1, 0);
  ASSERT_TRUE(keeper.Sweep(1, {0}).has_value());
  kill(pid, SIGKILL);
  EXPECT_EQ(keeper.RunUntilExited(1, 0).signal, SIGKILL);
  EXPECT_TRUE(keeper.client->Keep(2, 0).ok());
  EXPECT_TRUE(keeper.RunUntil([&] { return keeper.start_failed.contains({2, 0}); }));
  EXPECT_TRUE(absl::IsNotFound(keeper.start_failed[{2, 0}]));
  // The same with a worker that was never retained.
  keeper.Spawn(2, 1, Misbehave({"live"})).ReadyPid();
  EXPECT_TRUE(keeper.client->Keep(3, 1).ok());
  EXPECT_TRUE(keeper.RunUntil([&] { return keeper.start_failed.contains({3, 1}); }));
  EXPECT_TRUE(keeper.Sweep(2).has_value());
}

TEST(KeeperKeepTest, WhoWasSparedCanBeSweptAfterAll) {
  KeeperUnderTest keeper;
  keeper.Spawn(1, 0, Misbehave({"live"})).ReadyPid();
  const pid_t pid = keeper.RunUntilStarted(1, 0);
  ASSERT_TRUE(keeper.Sweep(1, {0}).has_value());
  keeper.empty.clear();
  ASSERT_TRUE(keeper.Sweep(1).has_value());
  EXPECT_EQ(ProcessState(pid), '-');
  EXPECT_EQ((keeper.exited[{1, 0}].signal), SIGKILL);
}

// Without its agent the keeper retains no worker: neither one that waits for a generation nor one
// that was kept for one.
TEST(KeeperKeepTest, TheyDieWithTheAgent) {
  for (const bool kept : {false, true}) {
    KeeperUnderTest keeper;
    PipeReader& out = keeper.Spawn(1, 0, Misbehave({"daemon-parent"}));
    out.ReadyPid();
    out.ReadyPid();
    ASSERT_TRUE(keeper.Sweep(1, {0}).has_value());
    if (kept) {
      EXPECT_TRUE(keeper.client->Keep(2, 0).ok());
      keeper.RunUntilStarted(2, 0);
    }
    keeper.client.reset();
    EXPECT_TRUE(out.EndsWithin());
  }
}

}  // namespace
}  // namespace ddprun::testing
