// Processes that ended workers have left, in a keeper that gives them time.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "tests/process/process_testing.h"

namespace ddprun::testing {
namespace {

constexpr absl::Duration kLong = absl::Hours(1);

bool Lives(pid_t pid) { return ProcessState(pid) != '-' && ProcessState(pid) != 'Z'; }

class KeeperLeftoversTest : public ::testing::Test {
 protected:
  KeeperLeftoversTest() { keeper_.leftovers_time = kLong; }

  // A worker that has ended with this status, and the daemon that it has left.
  pid_t LeaveDaemon(uint64_t generation, const char* mode = "daemon", const char* status = "0") {
    const pid_t daemon = keeper_.Spawn(generation, 0, Misbehave({mode, status})).ReadyPid();
    keeper_.RunUntilExited(generation, 0);
    return daemon;
  }

  KeeperUnderTest keeper_{absl::Seconds(120), "", -1, /*kills_leftovers=*/false};
};

TEST_F(KeeperLeftoversTest, ASweepDoesNotWaitForThem) {
  const pid_t daemon = LeaveDaemon(1);
  EXPECT_EQ(keeper_.Sweep(1), 0U);
  ASSERT_EQ(keeper_.left.size(), 1U);
  EXPECT_EQ(keeper_.left[0].pid, daemon);
  EXPECT_EQ(keeper_.left[0].local_rank, 0);
  EXPECT_NE(keeper_.left[0].command.find("misbehave daemon"), std::string::npos);
  EXPECT_TRUE(Lives(daemon));
  EXPECT_FALSE(keeper_.leftovers_gone);
  kill(daemon, SIGKILL);
  EXPECT_TRUE(keeper_.RunUntil([&] { return keeper_.leftovers_gone; }));
  EXPECT_TRUE(keeper_.leftovers_killed.empty());
}

// The negative control: this is what the option `kill` does.
TEST(KeeperKillsLeftoversTest, TwinTheyDieWithTheirWorker) {
  KeeperUnderTest keeper;
  keeper.leftovers_time = kLong;
  const pid_t daemon = keeper.Spawn(1, 0, Misbehave({"daemon"})).ReadyPid();
  EXPECT_EQ(keeper.RunUntilExited(1, 0).swept, 1U);
  EXPECT_TRUE(keeper.Sweep(1).has_value());
  EXPECT_TRUE(keeper.left.empty());
  EXPECT_EQ(ProcessState(daemon), '-');
}

TEST_F(KeeperLeftoversTest, TheyAreKilledWhenTheirTimeIsOver) {
  const pid_t daemon = LeaveDaemon(1);
  keeper_.leftovers_time = absl::Milliseconds(50);
  EXPECT_TRUE(keeper_.Sweep(1).has_value());
  EXPECT_TRUE(keeper_.RunUntil([&] { return keeper_.leftovers_gone; }));
  EXPECT_EQ(keeper_.leftovers_killed[daemon], "was still there");
  EXPECT_EQ(ProcessState(daemon), '-');
}

TEST_F(KeeperLeftoversTest, SoIsOneWithoutAnEnvironment) {
  const pid_t daemon = LeaveDaemon(1, "nameless-daemon");
  keeper_.leftovers_time = absl::Milliseconds(50);
  EXPECT_TRUE(keeper_.Sweep(1).has_value());
  EXPECT_TRUE(keeper_.RunUntil([&] { return keeper_.leftovers_gone; }));
  EXPECT_EQ(ProcessState(daemon), '-');
}

TEST_F(KeeperLeftoversTest, WhatLosesItsParentHasTheSameTime) {
  PipeReader& out = keeper_.Spawn(1, 0, Misbehave({"chain", "5"}));
  out.ReadyPid();
  keeper_.leftovers_time = absl::Milliseconds(50);
  EXPECT_TRUE(keeper_.Sweep(1).has_value());
  EXPECT_TRUE(keeper_.RunUntil([&] { return keeper_.leftovers_gone; }));
  EXPECT_TRUE(out.EndsWithin());
}

TEST_F(KeeperLeftoversTest, WorkersHaveNoTime) {
  PipeReader& out = keeper_.Spawn(1, 0, Misbehave({"ignore-term"}));
  const pid_t worker = out.ReadyPid();
  EXPECT_TRUE(keeper_.Sweep(1).has_value());
  EXPECT_EQ(ProcessState(worker), '-');
  EXPECT_TRUE(keeper_.left.empty());
}

TEST_F(KeeperLeftoversTest, TheyLiveBesideTheNextGenerationAndAreNotOfIt) {
  const pid_t daemon = LeaveDaemon(1);
  EXPECT_TRUE(keeper_.Sweep(1).has_value());
  keeper_.Spawn(2, 0, Misbehave({"live"})).ReadyPid();
  EXPECT_TRUE(keeper_.Sweep(2).has_value());
  EXPECT_TRUE(Lives(daemon));
  keeper_.client->LimitLeftovers(absl::ZeroDuration());
  EXPECT_TRUE(keeper_.RunUntil([&] { return keeper_.leftovers_gone; }));
  EXPECT_EQ(ProcessState(daemon), '-');
}

TEST_F(KeeperLeftoversTest, TheyDieWithAnAgentThatWantsNothingElse) {
  const pid_t daemon = LeaveDaemon(1);
  EXPECT_TRUE(keeper_.Sweep(1).has_value());
  keeper_.client.reset();
  EXPECT_TRUE(DiesWithin(daemon));
}

TEST_F(KeeperLeftoversTest, TheyOutliveAnAgentThatSparesThem) {
  const pid_t daemon = LeaveDaemon(1);
  keeper_.client->Sweep(1, {.leftovers_stay = true, .strict = false});
  EXPECT_TRUE(keeper_.RunUntil([&] { return keeper_.empty.contains(1); }));
  keeper_.client.reset();
  EXPECT_TRUE(Lives(daemon));
  EXPECT_TRUE(Lives(keeper_.keeper_pid));  // it waits for the daemon's end
  kill(daemon, SIGKILL);
  EXPECT_TRUE(DiesWithin(keeper_.keeper_pid));
}

TEST_F(KeeperLeftoversTest, NoneAreSparedWhereWorkersRunAgain) {
  const pid_t daemon = LeaveDaemon(1);
  keeper_.client->Sweep(1, {.leftovers_stay = true, .strict = false});
  EXPECT_TRUE(keeper_.RunUntil([&] { return keeper_.empty.contains(1); }));
  keeper_.Spawn(2, 0, Misbehave({"live"})).ReadyPid();
  keeper_.client.reset();
  EXPECT_TRUE(DiesWithin(daemon));
}

}  // namespace
}  // namespace ddprun::testing
