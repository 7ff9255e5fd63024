// What workers leave behind, and how the keeper gets rid of it.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "tests/process/process_testing.h"

namespace ddprun::testing {
namespace {

TEST(KeeperTreeTest, ADaemonDiesWithItsWorker) {
  KeeperUnderTest keeper;
  PipeReader& out = keeper.Spawn(1, 0, Misbehave({"daemon", "3"}));
  const pid_t daemon = out.ReadyPid();
  const WorkerExit exit = keeper.RunUntilExited(1, 0);
  EXPECT_EQ(exit.exit_code, 3);
  EXPECT_EQ(exit.swept, 1U);
  EXPECT_TRUE(out.EndsWithin());
  EXPECT_EQ(keeper.Sweep(1), 1U);
  EXPECT_EQ(ProcessState(daemon), '-');
}

// Negative control: without a keeper, killing the group of the worker leaves the daemon alive.
TEST(KeeperTreeTest, TwinWithoutAKeeperTheDaemonLivesOn) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  Program worker = StartProgram(Misbehave({"daemon-parent"}));
  const pid_t daemon = worker.out.ReadyPid();
  ASSERT_EQ(worker.out.ReadyPid(), worker.pid);
  EXPECT_EQ(kill(-worker.pid, SIGKILL), 0);
  EXPECT_EQ(waitpid(worker.pid, nullptr, 0), worker.pid);
  EXPECT_EQ(kill(daemon, 0), 0);
  EXPECT_NE(ProcessState(daemon), 'Z');
  kill(daemon, SIGKILL);
  EXPECT_TRUE(ReapAllChildren().empty());
}

TEST(KeeperTreeTest, ADaemonWithoutAnEnvironmentDiesInTheSweep) {
  KeeperUnderTest keeper;
  PipeReader& out = keeper.Spawn(1, 0, Misbehave({"nameless-daemon"}));
  const pid_t daemon = out.ReadyPid();
  keeper.RunUntilExited(1, 0);
  EXPECT_EQ(keeper.Sweep(1), 1U);
  EXPECT_EQ(ProcessState(daemon), '-');
}

TEST(KeeperTreeTest, DaemonsOfALivingWorkerAreLeftAlone) {
  KeeperUnderTest keeper;
  PipeReader& out = keeper.Spawn(1, 0, Misbehave({"daemon-parent"}));
  const pid_t daemon = out.ReadyPid();
  out.ReadyPid();
  keeper.Spawn(1, 1, Misbehave({"daemon"}));
  EXPECT_EQ(keeper.RunUntilExited(1, 1).swept, 1U);
  // One more round trip, so that the keeper has done all that followed.
  keeper.Spawn(1, 2, Misbehave({"exit"}));
  keeper.RunUntilExited(1, 2);
  EXPECT_EQ(ProcessState(daemon), 'S');
  EXPECT_EQ(keeper.Sweep(1), 2U);
  EXPECT_EQ(ProcessState(daemon), '-');
}

TEST(KeeperTreeTest, SweepEmptiesEveryKindOfTree) {
  const std::vector<std::vector<std::string>> kinds = {
      {"ignore-term"}, {"fork-on-exit"}, {"daemon-parent"}, {"fork-tree", "4"},
      {"chain", "5"},  {"stop"},         {"live"}};
  KeeperUnderTest keeper;
  std::vector<PipeReader*> outs;
  for (uint32_t rank = 0; rank < kinds.size(); ++rank) {
    outs.push_back(&keeper.Spawn(1, rank, Misbehave(kinds[rank])));
  }
  for (PipeReader* out : outs) out->ReadyPid();
  ASSERT_TRUE(keeper.Sweep(1).has_value());
  for (uint32_t rank = 0; rank < kinds.size(); ++rank) {
    // All processes were gone before Empty was sent.
    EXPECT_TRUE(outs[rank]->EndsWithin(absl::ZeroDuration())) << kinds[rank][0];
    EXPECT_EQ((keeper.exited[{1, rank}].signal), SIGKILL) << kinds[rank][0];
  }
}

TEST(KeeperTreeTest, AForkOnExitDoesNotEscape) {
  KeeperUnderTest keeper;
  PipeReader& out = keeper.Spawn(1, 0, Misbehave({"fork-on-exit", "1"}));
  EXPECT_EQ(keeper.RunUntilExited(1, 0).exit_code, 1);
  EXPECT_TRUE(out.EndsWithin());
}

TEST(KeeperTreeTest, AForkStormIsOvertaken) {
  KeeperUnderTest keeper;
  PipeReader& out = keeper.Spawn(1, 0, Misbehave({"fork-storm", "3000"}));
  out.ReadyPid();
  // The worker ends at its first fork; its kin runs on from session to session.
  ASSERT_TRUE(keeper.Sweep(1).has_value());
  EXPECT_TRUE(out.EndsWithin(absl::ZeroDuration()));
}

TEST(KeeperTreeTest, AChildThatHoldsThePipeDiesWithItsWorker) {
  KeeperUnderTest keeper;
  PipeReader& out = keeper.Spawn(1, 0, Misbehave({"hold-pipe"}));
  EXPECT_EQ(out.Line(), "last words");
  keeper.RunUntilExited(1, 0);
  EXPECT_TRUE(out.EndsWithin());
}

TEST(KeeperTreeTest, AnEmptyTreeIsEmptyAtOnceAndEveryQuestionIsAnswered) {
  KeeperUnderTest keeper;
  keeper.client->Sweep(7, {});
  keeper.client->Sweep(8, {});
  EXPECT_TRUE(keeper.RunUntil([&] { return keeper.empty.size() == 2; }));
  EXPECT_EQ(keeper.empty[7], 0U);
}

TEST(KeeperTreeTest, NothingStartsWhileASweepIsUnderWay) {
  KeeperUnderTest keeper;
  keeper.Spawn(1, 0, Misbehave({"live"})).ReadyPid();
  // The keeper reads the two commands together.
  kill(keeper.keeper_pid, SIGSTOP);
  keeper.client->Sweep(1, {});
  keeper.Spawn(2, 0, Misbehave({"live"}));
  kill(keeper.keeper_pid, SIGCONT);
  EXPECT_TRUE(keeper.RunUntil([&] { return keeper.start_failed.contains({2, 0}); }));
  EXPECT_EQ((keeper.start_failed[{2, 0}].code()), absl::ErrnoToStatusCode(EBUSY));
  EXPECT_TRUE(keeper.RunUntil([&] { return keeper.empty.contains(1); }));
  keeper.Spawn(3, 0, Misbehave({"exit", "4"}));
  EXPECT_EQ(keeper.RunUntilExited(3, 0).exit_code, 4);
}

TEST(KeeperTreeTest, GenerationsFollowEachOther) {
  KeeperUnderTest keeper;
  for (uint64_t generation = 1; generation <= 5; ++generation) {
    PipeReader& out = keeper.Spawn(generation, 0, Misbehave({"daemon-parent"}));
    out.ReadyPid();
    out.ReadyPid();
    EXPECT_TRUE(keeper.Sweep(generation).has_value());
    EXPECT_TRUE(out.EndsWithin(absl::ZeroDuration()));
  }
}

}  // namespace
}  // namespace ddprun::testing
