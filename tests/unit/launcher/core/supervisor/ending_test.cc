#include "launcher/core/supervisor/ending.h"

#include <gtest/gtest.h>

#include <csignal>

#include "launcher/core/exit_status.h"

namespace ddprun::launcher::ending_test {
namespace {

using rendezvous::Outcome;
using rendezvous::Verdict;
using Step = Ending::Step;

Instant Time(double seconds) { return Instant() + absl::Seconds(seconds); }

constexpr Ending::Progress kAlone = {.workers_gone = true};
constexpr Ending::Progress kOpen = {.workers_gone = true, .stream_open = true};
constexpr Ending::Progress kWelcomed = {
    .workers_gone = true, .stream_open = true, .stream_welcomed = true};

class EndingTest : public ::testing::Test {
 protected:
  explicit EndingTest(bool with_first_cause = false)
      : ending_({.with_first_cause = with_first_cause}) {}
  ~EndingTest() override { EXPECT_EQ(ending_.BrokenInvariant(), ""); }

  Ending ending_;
};

TEST_F(EndingTest, WorkersThenLeaveThenStreamThenExit) {
  ending_.Begin(kExitFailed);
  ending_.Leave(SIGTERM);
  EXPECT_EQ(ending_.Next(Time(1), {.stream_open = true, .stream_welcomed = true}), Step::kWait);
  EXPECT_EQ(ending_.Next(Time(2), kWelcomed), Step::kSendLeave);
  ending_.LeaveSent();
  EXPECT_EQ(ending_.Next(Time(2), kWelcomed), Step::kFinishStream);
  EXPECT_EQ(ending_.Deadline(), Time(4));
  EXPECT_EQ(ending_.Next(Time(3), kWelcomed), Step::kWait);
  EXPECT_EQ(ending_.Deadline(), Time(4)) << "asking again doesn't prolong it";
  EXPECT_EQ(ending_.Next(Time(3), kAlone), Step::kExit);
  const Exit exit = ending_.ToExit();
  EXPECT_EQ(exit.status, kExitFailed);
  EXPECT_EQ(exit.signal, SIGTERM);
  EXPECT_EQ(exit.why, "");
}

TEST_F(EndingTest, ALeaveWaitsForTheWelcomeButNotForLong) {
  ending_.Leave(SIGTERM);
  EXPECT_EQ(ending_.Next(Time(1), kOpen), Step::kWait);
  EXPECT_EQ(ending_.Next(Time(2), kOpen), Step::kWait);
  EXPECT_EQ(ending_.Deadline(), Time(3)) << "from the first time on";
  EXPECT_FALSE(ending_.OnTimer(Time(2.9)));
  EXPECT_TRUE(ending_.OnTimer(Time(3)));
  EXPECT_FALSE(ending_.OnTimer(Time(4))) << "once";
}

TEST_F(EndingTest, AfterAVerdictNobodyNeedsToKnow) {
  ending_.Leave(SIGTERM);
  ending_.OnVerdict({.outcome = Outcome::kSucceeded, .reason = "done"});
  ending_.OnVerdict({.outcome = Outcome::kFailed, .reason = "late"});
  EXPECT_EQ(ending_.Next(Time(1), kWelcomed), Step::kFinishStream);
  EXPECT_EQ(ending_.ToExit().verdict->reason, "done") << "the first one holds";
}

TEST_F(EndingTest, TheServiceLeavesLastWhereOthersWereTold) {
  ending_.SetServiceRunning(true);
  EXPECT_EQ(ending_.Next(Time(1), kAlone), Step::kExit) << "nobody waits for it";
  ending_.OnVerdict({.outcome = Outcome::kSucceeded});
  EXPECT_EQ(ending_.Next(Time(1), kAlone), Step::kWait);
  EXPECT_EQ(ending_.Next(Time(2), kAlone), Step::kWait);
  EXPECT_EQ(ending_.Deadline(), Time(6));
  ending_.SetServiceRunning(false);
  EXPECT_EQ(ending_.Next(Time(3), kAlone), Step::kExit);
}

class LateAgentsTest : public ::testing::Test {
 protected:
  LateAgentsTest() {
    ending_.SetServiceRunning(true);
    ending_.OnVerdict({.outcome = Outcome::kSucceeded});
    EXPECT_EQ(ending_.Next(Time(10), kAlone), Step::kWait);
    EXPECT_FALSE(ending_.OnTimer(Time(14.9)));
    EXPECT_FALSE(ending_.TakeLateWait(Time(14.9)).has_value());
    EXPECT_FALSE(ending_.OnTimer(Time(15)));
  }
  ~LateAgentsTest() override { EXPECT_EQ(ending_.BrokenInvariant(), ""); }

  Ending ending_{{.late_agents = absl::Seconds(60)}, Time(2)};
};

TEST_F(LateAgentsTest, MayTakeTheServiceAMinuteFromTheStart) {
  EXPECT_EQ(ending_.TakeLateWait(Time(15)), absl::Seconds(47));
  EXPECT_FALSE(ending_.TakeLateWait(Time(16)).has_value()) << "once";
  EXPECT_EQ(ending_.Next(Time(16), kAlone), Step::kWait);
  EXPECT_EQ(ending_.Deadline(), Time(67));
  EXPECT_TRUE(ending_.OnTimer(Time(67)));
}

TEST_F(LateAgentsTest, AreNotWaitedForAfterASignal) {
  ending_.Leave(SIGTERM);
  EXPECT_EQ(ending_.Next(Time(16), kAlone), Step::kExit);
}

TEST_F(EndingTest, AServiceThatWasGivenUpEndsNoStream) {
  ending_.GiveUpService();
  EXPECT_EQ(ending_.Next(Time(1), kOpen), Step::kExit);
}

TEST_F(EndingTest, WhatOutlivesKillIsToldOnceAndNotAfterTheGoodbye) {
  EXPECT_TRUE(ending_.OnUnclean());
  EXPECT_FALSE(ending_.OnUnclean());
  Ending late({});
  ASSERT_EQ(late.Next(Time(1), kOpen), Step::kFinishStream);
  EXPECT_FALSE(late.OnUnclean());
}

TEST_F(EndingTest, WhyItEndsStandsWhereNoVerdictSaysIt) {
  ending_.Explain("lost the job");
  EXPECT_EQ(ending_.ToExit().why, "lost the job");
  ending_.OnVerdict({});
  EXPECT_EQ(ending_.ToExit().why, "");
}

TEST_F(EndingTest, WithoutAKeeperItLeavesOnNoSignal) {
  ending_.LeaveWithoutKeeper();
  EXPECT_TRUE(ending_.is_leaving());
  EXPECT_EQ(ending_.leave_signal(), 0);
  EXPECT_EQ(ending_.Next(Time(1), kWelcomed), Step::kSendLeave);
}

TEST_F(EndingTest, StatusOfAVerdict) {
  EXPECT_EQ(ending_.StatusOf({.outcome = Outcome::kSucceeded}), 0);
  EXPECT_EQ(ending_.StatusOf({.outcome = Outcome::kFailedForGood}), kExitFailedForGood);
  EXPECT_EQ(ending_.StatusOf({.outcome = Outcome::kPreempted}), kExitPreempted);
  EXPECT_EQ(ending_.StatusOf({.outcome = Outcome::kStopped}), kExitFailed);
  EXPECT_EQ(ending_.StatusOf({.failures = {{.exit_code = 7}}, .first_causes = 1}), kExitFailed);
}

class FirstCauseTest : public EndingTest {
 protected:
  FirstCauseTest() : EndingTest(/*with_first_cause=*/true) {}
};

TEST_F(FirstCauseTest, GivesTheStatus) {
  EXPECT_EQ(ending_.StatusOf({.failures = {{.exit_code = 7}}, .first_causes = 1}), 7);
  EXPECT_EQ(ending_.StatusOf({.failures = {{.signal = SIGKILL}}, .first_causes = 1}), 137);
  EXPECT_EQ(ending_.StatusOf({.failures = {{.start_error = "x"}}, .first_causes = 1}), 1);
  EXPECT_EQ(ending_.StatusOf({.failures = {{.exit_code = 7}}, .first_causes = 0}), 1);
}

TEST(EndingDeathTest, ANodeLeavesForOneReason) {
  Ending ending({});
  EXPECT_DEATH(ending.Leave(0), "a signal has a number");
  ending.Leave(SIGTERM);
  EXPECT_DEATH(ending.LeaveWithoutKeeper(), "a node leaves for one reason");
}

}  // namespace
}  // namespace ddprun::launcher::ending_test
