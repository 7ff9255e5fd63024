#include "launcher/core/supervisor/departure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddprun::launcher::preemption_test {
namespace {

using Answer = Departure::Answer;
using Due = Departure::Due;

Instant Time(double seconds) { return Instant() + absl::Seconds(seconds); }

constexpr Departure::Situation kRuns = {.can_agree = true, .all_started = true};

// 20 s of deadline; USR2 preempts, and TERM where the workers ask for it.
class PreemptionTest : public ::testing::Test {
 protected:
  explicit PreemptionTest(absl::Duration after = absl::InfiniteDuration())
      : departure_({.deadline = absl::Seconds(20), .after = after},
                   {.preempting = {SIGUSR2}, .term_preempts_who_asks = true}, Instant()) {}
  ~PreemptionTest() override { EXPECT_EQ(departure_.BrokenInvariant(), ""); }

  Departure departure_;
};

TEST_F(PreemptionTest, OnASignalOfTheUsersTheStepIsAgreed) {
  EXPECT_EQ(departure_.OnSignal(SIGUSR2, kRuns), Answer::kAgree);
  departure_.Begin(SIGUSR2);
  EXPECT_TRUE(departure_.is_going());
  EXPECT_TRUE(departure_.Preempts(SIGUSR2, false));
  EXPECT_EQ(departure_.OnSignal(SIGUSR2, kRuns), Answer::kLeave) << "the second doesn't wait";
}

TEST_F(PreemptionTest, TermAsksTheWorkersFirst) {
  EXPECT_EQ(departure_.OnSignal(SIGTERM, kRuns), Answer::kAskWorkers);
  EXPECT_EQ(departure_.TakeAsked(), SIGTERM);
  EXPECT_EQ(departure_.TakeAsked(), 0) << "they answer once";
  EXPECT_FALSE(departure_.is_going());
}

TEST_F(PreemptionTest, ASignalWhileTheWorkersAreAskedDoesNotWait) {
  departure_.OnSignal(SIGTERM, kRuns);
  EXPECT_EQ(departure_.OnSignal(SIGUSR2, kRuns), Answer::kLeave);
  EXPECT_EQ(departure_.TakeAsked(), 0) << "nor is their answer awaited";
}

TEST_F(PreemptionTest, WithoutAnybodyToAgreeWithTheNodeLeaves) {
  EXPECT_EQ(departure_.OnSignal(SIGUSR2, {.can_agree = false, .all_started = true}),
            Answer::kLeave);
  EXPECT_EQ(departure_.OnSignal(SIGTERM, {.can_agree = true, .all_started = false}),
            Answer::kLeave);
  EXPECT_EQ(departure_.OnSignal(SIGINT, kRuns), Answer::kLeave) << "it doesn't preempt";
}

TEST_F(PreemptionTest, TermPreemptsOnceAStepIsCommitted) {
  EXPECT_FALSE(departure_.Preempts(SIGTERM, /*committed=*/false));
  EXPECT_TRUE(departure_.Preempts(SIGTERM, /*committed=*/true));
  EXPECT_EQ(
      departure_.OnSignal(SIGTERM, {.can_agree = true, .all_started = true, .committed = true}),
      Answer::kAgree);
}

TEST_F(PreemptionTest, TheAgreementHasHalfOfTheDeadline) {
  departure_.Begin(SIGUSR2);
  departure_.AwaitAgreement(Time(5));
  EXPECT_EQ(departure_.Deadline(), Time(15));
  EXPECT_EQ(departure_.OnTimer(Time(14.9), Time(14.9)), Due::kNothing);
  EXPECT_EQ(departure_.OnTimer(Time(15), Time(15)), Due::kBound);
  EXPECT_EQ(departure_.OnTimer(Time(16), Time(16)), Due::kNothing) << "once";
}

TEST_F(PreemptionTest, AnAgreementEndsTheWaitAndTheOthersHaveAllOfIt) {
  departure_.Begin(SIGUSR2);
  departure_.AwaitAgreement(Time(5));
  departure_.OnAgreed();
  EXPECT_TRUE(departure_.Deadline().is_infinite());
  departure_.AwaitOthers(Time(6));
  EXPECT_EQ(departure_.Deadline(), Time(26));
}

TEST_F(PreemptionTest, ADrainSaysWhyInPlaceOfItsSignal) {
  departure_.Drain("drained: disk");
  EXPECT_TRUE(departure_.is_drained());
  EXPECT_EQ(departure_.signal(), SIGTERM);
  EXPECT_EQ(departure_.WhyLeaving(SIGTERM, "got "), "drained: disk");
  EXPECT_EQ(departure_.WhyLeaving(SIGINT, "got "), "got SIGINT");
}

TEST_F(PreemptionTest, WithoutAReasonTheSignalSaysIt) {
  departure_.Drain("");
  EXPECT_EQ(departure_.WhyLeaving(SIGTERM), "SIGTERM");
}

class TimedPreemption : public PreemptionTest {
 protected:
  TimedPreemption() : PreemptionTest(absl::Seconds(100)) {}
};

TEST_F(TimedPreemption, BeginsADeadlineBeforeTheTimeAndOnce) {
  EXPECT_EQ(departure_.TimeIsOver(), Time(80));
  EXPECT_EQ(departure_.OnTimer(Time(80), Time(80)), Due::kTime);
  EXPECT_EQ(departure_.OnTimer(Time(90), Time(90)), Due::kNothing);
  EXPECT_EQ(departure_.TimeText(), "its time is over (--preempt_after 1m40s)");
  departure_.BeginFor(departure_.TimeText());
  EXPECT_FALSE(departure_.is_drained());
}

TEST(PreemptionDeathTest, ANodeIsTakenAwayOnceAndAwaitsNothingBefore) {
  Departure preemption({}, {}, Instant());
  EXPECT_DEATH(preemption.AwaitAgreement(Time(1)), "nothing is agreed for a node that stays");
  EXPECT_DEATH(preemption.AwaitOthers(Time(1)), "need not wait to leave");
  EXPECT_DEATH(preemption.Begin(0), "a signal takes it away");
  preemption.Begin(SIGTERM);
  EXPECT_DEATH(preemption.Begin(SIGTERM), "a node is taken away once");
}

}  // namespace
}  // namespace ddprun::launcher::preemption_test
