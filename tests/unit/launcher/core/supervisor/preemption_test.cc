#include "launcher/core/supervisor/preemption.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddprun::launcher::preemption_test {
namespace {

using Answer = Preemption::Answer;
using Due = Preemption::Due;

Instant Time(double seconds) { return Instant() + absl::Seconds(seconds); }

constexpr Preemption::Situation kRuns = {.can_agree = true, .all_started = true};

// 20 s of deadline; USR2 preempts, and TERM where the workers ask for it.
class PreemptionTest : public ::testing::Test {
 protected:
  explicit PreemptionTest(absl::Duration after = absl::InfiniteDuration())
      : preemption_({.deadline = absl::Seconds(20), .after = after},
                    {.preempting = {SIGUSR2}, .term_preempts_who_asks = true}, Instant()) {}
  ~PreemptionTest() override { EXPECT_EQ(preemption_.BrokenInvariant(), ""); }

  Preemption preemption_;
};

TEST_F(PreemptionTest, OnASignalOfTheUsersTheStepIsAgreed) {
  EXPECT_EQ(preemption_.OnSignal(SIGUSR2, kRuns), Answer::kAgree);
  preemption_.Begin(SIGUSR2);
  EXPECT_TRUE(preemption_.is_going());
  EXPECT_TRUE(preemption_.Preempts(SIGUSR2, false));
  EXPECT_EQ(preemption_.OnSignal(SIGUSR2, kRuns), Answer::kLeave) << "the second doesn't wait";
}

TEST_F(PreemptionTest, TermAsksTheWorkersFirst) {
  EXPECT_EQ(preemption_.OnSignal(SIGTERM, kRuns), Answer::kAskWorkers);
  EXPECT_EQ(preemption_.TakeAsked(), SIGTERM);
  EXPECT_EQ(preemption_.TakeAsked(), 0) << "they answer once";
  EXPECT_FALSE(preemption_.is_going());
}

TEST_F(PreemptionTest, ASignalWhileTheWorkersAreAskedDoesNotWait) {
  preemption_.OnSignal(SIGTERM, kRuns);
  EXPECT_EQ(preemption_.OnSignal(SIGUSR2, kRuns), Answer::kLeave);
  EXPECT_EQ(preemption_.TakeAsked(), 0) << "nor is their answer awaited";
}

TEST_F(PreemptionTest, WithoutAnybodyToAgreeWithTheNodeLeaves) {
  EXPECT_EQ(preemption_.OnSignal(SIGUSR2, {.can_agree = false, .all_started = true}),
            Answer::kLeave);
  EXPECT_EQ(preemption_.OnSignal(SIGTERM, {.can_agree = true, .all_started = false}),
            Answer::kLeave);
  EXPECT_EQ(preemption_.OnSignal(SIGINT, kRuns), Answer::kLeave) << "it doesn't preempt";
}

TEST_F(PreemptionTest, TermPreemptsOnceAStepIsCommitted) {
  EXPECT_FALSE(preemption_.Preempts(SIGTERM, /*committed=*/false));
  EXPECT_TRUE(preemption_.Preempts(SIGTERM, /*committed=*/true));
  EXPECT_EQ(
      preemption_.OnSignal(SIGTERM, {.can_agree = true, .all_started = true, .committed = true}),
      Answer::kAgree);
}

TEST_F(PreemptionTest, TheAgreementHasHalfOfTheDeadline) {
  preemption_.Begin(SIGUSR2);
  preemption_.AwaitAgreement(Time(5));
  EXPECT_EQ(preemption_.Deadline(), Time(15));
  EXPECT_EQ(preemption_.OnTimer(Time(14.9), Time(14.9)), Due::kNothing);
  EXPECT_EQ(preemption_.OnTimer(Time(15), Time(15)), Due::kBound);
  EXPECT_EQ(preemption_.OnTimer(Time(16), Time(16)), Due::kNothing) << "once";
}

TEST_F(PreemptionTest, AnAgreementEndsTheWaitAndTheOthersHaveAllOfIt) {
  preemption_.Begin(SIGUSR2);
  preemption_.AwaitAgreement(Time(5));
  preemption_.OnAgreed();
  EXPECT_TRUE(preemption_.Deadline().is_infinite());
  preemption_.AwaitOthers(Time(6));
  EXPECT_EQ(preemption_.Deadline(), Time(26));
}

TEST_F(PreemptionTest, ADrainSaysWhyInPlaceOfItsSignal) {
  preemption_.Drain("drained: disk");
  EXPECT_TRUE(preemption_.is_drained());
  EXPECT_EQ(preemption_.signal(), SIGTERM);
  EXPECT_EQ(preemption_.WhyLeaving(SIGTERM, "got "), "drained: disk");
  EXPECT_EQ(preemption_.WhyLeaving(SIGINT, "got "), "got SIGINT");
}

TEST_F(PreemptionTest, WithoutAReasonTheSignalSaysIt) {
  preemption_.Drain("");
  EXPECT_EQ(preemption_.WhyLeaving(SIGTERM), "SIGTERM");
}

class TimedPreemption : public PreemptionTest {
 protected:
  TimedPreemption() : PreemptionTest(absl::Seconds(100)) {}
};

TEST_F(TimedPreemption, BeginsADeadlineBeforeTheTimeAndOnce) {
  EXPECT_EQ(preemption_.TimeIsOver(), Time(80));
  EXPECT_EQ(preemption_.OnTimer(Time(80), Time(80)), Due::kTime);
  EXPECT_EQ(preemption_.OnTimer(Time(90), Time(90)), Due::kNothing);
  EXPECT_EQ(preemption_.TimeText(), "its time is over (--preempt_after 1m40s)");
  preemption_.BeginFor(preemption_.TimeText());
  EXPECT_FALSE(preemption_.is_drained());
}

TEST(PreemptionDeathTest, ANodeIsTakenAwayOnceAndAwaitsNothingBefore) {
  Preemption preemption({}, {}, Instant());
  EXPECT_DEATH(preemption.AwaitAgreement(Time(1)), "nothing is agreed for a node that stays");
  EXPECT_DEATH(preemption.AwaitOthers(Time(1)), "need not wait to leave");
  EXPECT_DEATH(preemption.Begin(0), "a signal takes it away");
  preemption.Begin(SIGTERM);
  EXPECT_DEATH(preemption.Begin(SIGTERM), "a node is taken away once");
}

}  // namespace
}  // namespace ddprun::launcher::preemption_test
