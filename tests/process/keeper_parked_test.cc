// A process that is parked and becomes workers, and one that doesn't: then they are started by
// exec.
#include <gtest/gtest.h>

#include <csignal>

#include "absl/strings/match.h"
#include "tests/process/process_testing.h"

namespace ddprun::testing {
namespace {

using launcher::SpawnRequest;

constexpr absl::Duration kShort = absl::Milliseconds(100);

class KeeperParkedTest : public ::testing::Test {
 protected:
  // Parks `misbehave parked HOW`, and waits until it has said a word.
  void Park(const std::string& how) {
    const size_t words = keeper_.said.size();
    ASSERT_TRUE(keeper_.client->Park({.argv = Misbehave({"parked", how})}).ok());
    ASSERT_TRUE(keeper_.RunUntil([&] { return keeper_.said.size() > words; }));
    EXPECT_EQ(keeper_.said.back(), "here");
  }
  void Spawn(uint64_t generation, absl::Duration patience) {
    SpawnRequest request{.generation = generation, .argv = Misbehave({"live"})};
    request.parked_patience = patience;
    ASSERT_TRUE(keeper_.Spawn(std::move(request)).ok());
  }
  // Whether the worker was the parked process.
  bool StartsParked(uint64_t generation, absl::Duration patience = kPatience) {
    Spawn(generation, patience);
    EXPECT_NE(keeper_.RunUntilStarted(generation, 0), 0);
    return keeper_.parked[{generation, 0}];
  }
  bool RunUntilEnded() {
    return keeper_.RunUntil([&] { return !keeper_.ended.empty(); });
  }

  KeeperUnderTest keeper_;
};

TEST_F(KeeperParkedTest, BecomesTheWorkersOfOneGenerationAfterTheOther) {
  Park("forks");
  for (uint64_t generation = 1; generation <= 3; ++generation) {
    EXPECT_TRUE(StartsParked(generation));
    const pid_t pid = keeper_.started[{generation, 0}];
    EXPECT_EQ(getsid(pid), pid);
    kill(pid, SIGUSR1);
    EXPECT_EQ(keeper_.RunUntilExited(generation, 0).signal, SIGUSR1);
    EXPECT_EQ(keeper_.Sweep(generation), 0U);
  }
  EXPECT_TRUE(keeper_.ended.empty());
}

TEST_F(KeeperParkedTest, ASweepTakesItsWorkersAndLeavesIt) {
  Park("forks");
  EXPECT_TRUE(StartsParked(1));
  EXPECT_TRUE(keeper_.Sweep(1).has_value());
  EXPECT_FALSE(DiesWithin(keeper_.keeper_pid, absl::ZeroDuration()));
  EXPECT_TRUE(StartsParked(2));
}

TEST_F(KeeperParkedTest, WithoutPatienceOrOneThatIsParkedWorkersAreExecuted) {
  EXPECT_FALSE(StartsParked(1));
  Park("forks");
  EXPECT_TRUE(keeper_.Sweep(1).has_value());
  EXPECT_FALSE(StartsParked(2, absl::ZeroDuration()));
}

TEST_F(KeeperParkedTest, OneThatNeverAnswersIsLeftAloneWhenPatienceIsOver) {
  Park("silent");
  EXPECT_FALSE(StartsParked(1, kShort));
  EXPECT_TRUE(keeper_.ended.empty());  // it may still be importing
}

TEST_F(KeeperParkedTest, OneThatIsStuckIsKilledWhenPatienceIsOver) {
  Park("stuck");
  EXPECT_FALSE(StartsParked(1, kShort));
  ASSERT_TRUE(RunUntilEnded());
  EXPECT_EQ(keeper_.ended[0], "was killed by SIGKILL");
}

TEST_F(KeeperParkedTest, OneThatDiesIsReplacedByExecAtOnce) {
  Park("dies");
  EXPECT_FALSE(StartsParked(1));
  ASSERT_TRUE(RunUntilEnded());
  EXPECT_EQ(keeper_.ended[0], "exited with status 3");
}

TEST_F(KeeperParkedTest, AProcessThatIsNotOursIsNoWorker) {
  Park("liar");
  EXPECT_FALSE(StartsParked(1));
  EXPECT_NE((keeper_.started[{1, 0}]), 1);
}

TEST_F(KeeperParkedTest, AStopEndsAStartThatWaits) {
  Park("silent");
  Spawn(1, kPatience);
  keeper_.client->Signal(1, SIGTERM, {});
  ASSERT_TRUE(keeper_.RunUntil([&] { return keeper_.start_failed.contains({1, 0}); }));
  EXPECT_TRUE(absl::StrContains((keeper_.start_failed[{1, 0}].message()), "stop"));
  EXPECT_EQ(keeper_.Sweep(1), 0U);
}

TEST_F(KeeperParkedTest, ASweepEndsAStartThatWaits) {
  for (const std::string how : {"silent", "stuck"}) {
    KeeperUnderTest keeper;
    ASSERT_TRUE(keeper.client->Park({.argv = Misbehave({"parked", how})}).ok());
    ASSERT_TRUE(keeper.RunUntil([&] { return !keeper.said.empty(); }));
    SpawnRequest request{.generation = 1, .argv = Misbehave({"live"})};
    request.parked_patience = absl::Seconds(1);
    ASSERT_TRUE(keeper.Spawn(std::move(request)).ok());
    EXPECT_TRUE(keeper.Sweep(1).has_value()) << how;
    EXPECT_TRUE((keeper.start_failed.contains({1, 0}))) << how;
  }
}

TEST_F(KeeperParkedTest, ThereIsOneAtMost) {
  Park("forks");
  ASSERT_TRUE(keeper_.client->Park({.argv = Misbehave({"parked", "forks"})}).ok());
  ASSERT_TRUE(RunUntilEnded());
  EXPECT_TRUE(absl::StrContains(keeper_.ended[0], "could not be started")) << keeper_.ended[0];
  EXPECT_TRUE(StartsParked(1));
}

TEST_F(KeeperParkedTest, OneThatCanNotBeStartedSaysWhy) {
  ASSERT_TRUE(keeper_.client->Park({.argv = {"/nowhere/python3"}}).ok());
  ASSERT_TRUE(RunUntilEnded());
  EXPECT_TRUE(absl::StrContains(keeper_.ended[0], "exec: No such file")) << keeper_.ended[0];
}

TEST_F(KeeperParkedTest, ItGoesWhenItIsToldTo) {
  Park("forks");
  keeper_.client->Unpark();
  ASSERT_TRUE(RunUntilEnded());
  EXPECT_FALSE(StartsParked(1));
}

}  // namespace
}  // namespace ddprun::testing
