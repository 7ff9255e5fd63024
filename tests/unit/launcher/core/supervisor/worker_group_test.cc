#include "launcher/core/supervisor/worker_group.h"

#include <gtest/gtest.h>

#include <cmath>
#include <csignal>

namespace ddprun::launcher {
namespace {

using Phase = WorkerGroup::Phase;
using rendezvous::Generation;

Instant At(double seconds) {
  return Instant::FromNanoseconds(std::llround(seconds * 1e3) * 1'000'000);
}

WorkerEnd Ended(uint32_t local_rank, double at, int exit_code = 0, int signal = 0) {
  WorkerEnd end;
  end.local_rank = local_rank;
  end.pid = 100 + local_rank;
  end.exit_code = exit_code;
  end.signal = signal;
  end.seen = At(at);
  return end;
}

WorkerGroup Running(uint32_t workers) {
  WorkerGroup group;
  group.Begin(Generation(1), 4, workers);
  for (uint32_t i = 0; i < workers; ++i) group.OnStarted(i, 100 + i);
  return group;
}

TEST(WorkerGroupTest, AllStartedIsToldOnce) {
  WorkerGroup group;
  group.Begin(Generation(1), 0, 2);
  EXPECT_FALSE(group.OnStarted(0, 10));
  EXPECT_FALSE(group.OnStarted(0, 10));
  EXPECT_FALSE(group.OnStarted(7, 10));
  EXPECT_TRUE(group.OnStarted(1, 11));
  EXPECT_FALSE(group.OnStarted(1, 11));
}

TEST(WorkerGroupTest, SuccessSweepsBeforeItCounts) {
  WorkerGroup group = Running(2);
  EXPECT_EQ(group.OnEnded(At(1), Ended(0, 1)), GroupAction::kNone);
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.OnEnded(At(2), Ended(1, 2)), GroupAction::kSweep);
  EXPECT_EQ(group.phase(), Phase::kSweeping);
  group.OnEmpty();
  EXPECT_TRUE(group.succeeded());
  EXPECT_EQ(group.phase(), Phase::kIdle);
}

TEST(WorkerGroupTest, AFailureTellsWhichRanksHadLeftBefore) {
  WorkerGroup group = Running(4);
  group.OnEnded(At(1), Ended(0, 1, 3));
  EXPECT_TRUE(group.Describe(group.failures()[0], {}, "").facts.empty());
  group = Running(4);
  group.OnEnded(At(1), Ended(1, 1));
  group.OnEnded(At(2), Ended(3, 2));
  group.OnEnded(At(3.5), Ended(0, 3.5, 1));
  group.OnEnded(At(4), Ended(2, 4));
  EXPECT_EQ(group.Describe(group.failures()[0], {}, "").facts,
            std::vector<std::string>{
                "left: ranks 5, 7 had ended with status 0, the first of them 2.5s before"});
  EXPECT_EQ(group.left(), (std::vector<uint32_t>{1, 2, 3}));
}

TEST(WorkerGroupTest, AWorkerThatWeStopHasNotLeft) {
  WorkerGroup group = Running(2);
  group.OnEnded(At(1), Ended(0, 1, 1));
  group.Stop(At(1.1), At(1.1), SIGTERM, absl::Seconds(30));
  group.OnEnded(At(2), Ended(1, 2));
  EXPECT_TRUE(group.left().empty());
}

TEST(WorkerGroupTest, FailureThenStopThenKill) {
  WorkerGroup group = Running(3);
  EXPECT_EQ(group.OnEnded(At(1), Ended(1, 1, 3)), GroupAction::kNone);
  ASSERT_EQ(group.failures().size(), 1U);
  EXPECT_EQ(group.Stop(At(1.001), At(1.001), SIGTERM, absl::Seconds(30)), GroupAction::kSignal);
  EXPECT_EQ(group.Stop(At(2), At(2), SIGTERM, absl::Seconds(30)), GroupAction::kNone);
  EXPECT_EQ(group.Deadline(), At(31.001));
  EXPECT_EQ(group.OnTimer(At(31), At(31)), GroupAction::kNone);
  EXPECT_EQ(group.OnTimer(At(31.001), At(31.001)), GroupAction::kSweep);
  EXPECT_FALSE(group.succeeded());
}

TEST(WorkerGroupTest, WhatEndsAfterOurSignalIsNoFailureOfItsOwn) {
  WorkerGroup group = Running(4);
  group.OnEnded(At(1), Ended(0, 1, 3));
  group.Stop(At(1.5), At(1.5), SIGTERM, absl::Seconds(30));
  group.OnEnded(At(1.6), Ended(1, 1.6, 0, SIGTERM));
  group.OnEnded(At(1.6), Ended(2, 1.6, 1));
  // Seen by the keeper before the signal went out: its own.
  EXPECT_EQ(group.OnEnded(At(1.4), Ended(3, 1.4, 0, SIGSEGV)), GroupAction::kSweep);
  ASSERT_EQ(group.failures().size(), 2U);
  EXPECT_EQ(group.failures()[0].exit_code, 3);
  EXPECT_EQ(group.failures()[1].signal, SIGSEGV);
}

// Rank 6 had reported its error to its peers before it ended, and a peer's end was seen first.
TEST(WorkerGroupTest, WhoIsNamedByAPeerFailedByItselfThoughWeSignalledIt) {
  WorkerGroup group = Running(4);
  WorkerEnd peer = Ended(0, 1, 1);
  peer.message = "PeerError: rank 6 failed: no such file (seen here as: rank 6 left the group)";
  group.OnEnded(At(1), peer);
  group.Stop(At(1), At(1), SIGTERM, absl::Seconds(30));
  WorkerEnd guilty = Ended(2, 1.1, 0, SIGTERM);  // of rank 6
  guilty.message = "no such file";
  group.OnEnded(At(1.1), guilty);
  // Negative controls: one that nobody names, and one that speaks of a peer.
  WorkerEnd other = Ended(1, 1.1, 1);
  other.message = "no such file";
  group.OnEnded(At(1.1), other);
  WorkerEnd consequence = Ended(3, 1.1, 1);
  consequence.message = "PeerError: rank 6 failed: no such file";
  group.OnEnded(At(1.1), consequence);
  ASSERT_EQ(group.failures().size(), 2);
  EXPECT_EQ(group.failures()[1].local_rank, 2);
  EXPECT_EQ(group.failures()[1].signal, 0);
  EXPECT_EQ(group.failures()[1].exit_code, 1);
  EXPECT_EQ(group.stopped().size(), 2);
}

TEST(WorkerGroupTest, AStopDuringTheSweepOfASuccessTakesItBack) {
  WorkerGroup group = Running(1);
  group.OnEnded(At(1), Ended(0, 1));
  EXPECT_EQ(group.Stop(At(1.1), At(1.1), SIGTERM, absl::Seconds(30)), GroupAction::kNone);
  group.OnEmpty();
  EXPECT_FALSE(group.succeeded());
}

TEST(WorkerGroupTest, UncleanWhenKillIsOutlived) {
  WorkerGroup group = Running(1);
  EXPECT_EQ(group.KillNow(At(1), At(1)), GroupAction::kSweep);
  EXPECT_EQ(group.KillNow(At(1), At(1)), GroupAction::kNone);
  EXPECT_EQ(group.Deadline(), At(6));
  group.OnTimer(At(5.9), At(5.9));
  EXPECT_FALSE(group.unclean());
  group.OnTimer(At(6), At(6));
  EXPECT_TRUE(group.unclean());
  EXPECT_TRUE(group.Deadline().is_infinite());
}

TEST(WorkerGroupTest, EndsAreCountedOnce) {
  WorkerGroup group = Running(2);
  group.OnEnded(At(1), Ended(0, 1, 1));
  group.OnEnded(At(1), Ended(0, 1, 1));
  EXPECT_EQ(group.failures().size(), 1U);
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.OnEnded(At(1), Ended(9, 1, 1)), GroupAction::kNone);
}

TEST(WorkerGroupTest, WhoLetsGoIsSparedAndKept) {
  WorkerGroup group = Running(3);
  group.OnCanRejoin(0, true);
  group.OnCanRejoin(1, true);
  EXPECT_EQ(group.Stop(At(1), At(1), SIGTERM, absl::Seconds(30)), GroupAction::kSignal);
  EXPECT_EQ(group.spared(), std::vector<uint32_t>({0, 1}));
  EXPECT_EQ(group.Deadline(), At(6));
  EXPECT_EQ(group.OnLetGo(At(1.1), 0), GroupAction::kNone);
  EXPECT_EQ(group.OnLetGo(At(1.1), 2), GroupAction::kNone);  // it didn't say that it can
  EXPECT_EQ(group.OnEnded(At(1.2), Ended(2, 1.2, 0, SIGTERM)), GroupAction::kNone);
  EXPECT_EQ(group.OnLetGo(At(1.3), 1), GroupAction::kSweep);
  EXPECT_EQ(group.BrokenInvariant(), "");
  group.OnEmpty();
  EXPECT_FALSE(group.succeeded());
  group.Begin(Generation(2), 7, 3);
  EXPECT_TRUE(group.is_kept(0));
  EXPECT_TRUE(group.is_kept(1));
  EXPECT_FALSE(group.is_kept(2));
  EXPECT_EQ(group.pid(1), 101U);
  EXPECT_EQ(group.pid(2), 0U);
  EXPECT_EQ(group.spared(), std::vector<uint32_t>({0, 1}));
}

TEST(WorkerGroupTest, WhoIsLateIsKilledAlone) {
  WorkerGroup group = Running(3);
  for (const uint32_t rank : {0U, 1U}) group.OnCanRejoin(rank, true);
  group.Stop(At(1), At(1), SIGTERM, absl::Seconds(30));
  group.OnLetGo(At(2), 1);
  EXPECT_EQ(group.OnTimer(At(5.9), At(5.9)), GroupAction::kNone);
  EXPECT_EQ(group.OnTimer(At(6), At(6)), GroupAction::kSignal);
  EXPECT_EQ(group.TakeLate(), std::vector<uint32_t>({0}));
  EXPECT_TRUE(group.TakeLate().empty());
  EXPECT_EQ(group.spared(), std::vector<uint32_t>({1}));
  EXPECT_EQ(group.Deadline(), At(31));  // of the plain one
  group.OnEnded(At(6.1), Ended(0, 6.1, 0, SIGKILL));
  EXPECT_EQ(group.OnEnded(At(7), Ended(2, 7, 0, SIGTERM)), GroupAction::kSweep);
  EXPECT_TRUE(group.failures().empty());
}

TEST(WorkerGroupTest, AShortGraceIsTheBound) {
  WorkerGroup group = Running(2);
  for (const uint32_t rank : {0U, 1U}) group.OnCanRejoin(rank, true);
  group.Stop(At(1), At(1), SIGTERM, absl::Seconds(2));
  group.OnLetGo(At(2), 1);
  EXPECT_EQ(group.Deadline(), At(3));
  EXPECT_EQ(group.OnTimer(At(3), At(3)), GroupAction::kSweep);
  EXPECT_EQ(group.TakeLate(), std::vector<uint32_t>({0}));
  EXPECT_EQ(group.spared(), std::vector<uint32_t>({1}));
}

TEST(WorkerGroupTest, WhoLetsGoOfAGenerationThatRunsWaitsForItsEnd) {
  WorkerGroup group = Running(2);
  group.OnCanRejoin(0, true);
  EXPECT_EQ(group.OnLetGo(At(1), 0), GroupAction::kNone);
  EXPECT_EQ(group.OnEnded(At(2), Ended(1, 2)), GroupAction::kNone);
  EXPECT_EQ(group.phase(), Phase::kRunning);
  EXPECT_EQ(group.Stop(At(3), At(3), SIGTERM, absl::Seconds(30)), GroupAction::kSweep);
  EXPECT_EQ(group.spared(), std::vector<uint32_t>({0}));
}

TEST(WorkerGroupTest, WhoIsKeptCanBeDroppedOrDie) {
  WorkerGroup group = Running(2);
  for (const uint32_t rank : {0U, 1U}) group.OnCanRejoin(rank, true);
  group.Stop(At(1), At(1), SIGTERM, absl::Seconds(30));
  for (const uint32_t rank : {0U, 1U}) group.OnLetGo(At(1), rank);
  group.OnEmpty();
  EXPECT_EQ(group.OnEnded(At(2), Ended(0, 2, 0, SIGSEGV)), GroupAction::kNone);
  EXPECT_EQ(group.spared(), std::vector<uint32_t>({1}));
  EXPECT_EQ(group.DropKept(At(3), At(3)), GroupAction::kSweep);
  EXPECT_TRUE(group.spared().empty());
  group.OnEmpty();
  EXPECT_EQ(group.DropKept(At(4), At(4)), GroupAction::kNone);
}

TEST(DescribeEndTest, Words) {
  EXPECT_EQ(DescribeEnd(Ended(0, 0, 3)), "exited with code 3");
  EXPECT_EQ(DescribeEnd(Ended(0, 0, 0, SIGKILL)), "was killed by SIGKILL");
  WorkerEnd end = Ended(0, 0, 0, SIGSEGV);
  end.core_dumped = true;
  EXPECT_EQ(DescribeEnd(end), "was killed by SIGSEGV (core dumped)");
  end.start_error = "exec '/x': Permission denied";
  EXPECT_EQ(DescribeEnd(end), "could not be started: exec '/x': Permission denied");
}

}  // namespace
}  // namespace ddprun::launcher
