#include "rendezvous/core/generation/stop_step.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/progress_page.h"

namespace ddprun::rendezvous::stop_step_test {
namespace {

using Action = StopAgreement::Action;
using ::testing::HasSubstr;

constexpr absl::Duration kDeadline = absl::Seconds(40);

// Two members, asked at 0.
class StopAgreementTest : public ::testing::Test {
 protected:
  StopAgreementTest() { stop_.Begin(now_, now_ + kDeadline, {0, 1}); }
  ~StopAgreementTest() override { EXPECT_EQ(stop_.BrokenInvariant(), ""); }

  Action Both(StopLook first, StopLook second) {
    EXPECT_EQ(stop_.Add(now_, 0, stop_.round(), first), Action::kNone);
    return stop_.Add(now_, 1, stop_.round(), second);
  }
  static StopLook At(uint64_t step, bool below = true, absl::Duration takes = {}) {
    return {.heeds = true, .below = below, .highest = step, .step_time = takes};
  }

  Instant now_;
  StopAgreement stop_;
};

TEST_F(StopAgreementTest, TheStepAfterTheHighestWhenAllAreBelow) {
  EXPECT_TRUE(stop_.active());
  EXPECT_EQ(stop_.step(), 0U);
  EXPECT_EQ(Both(At(17), At(16)), Action::kAsk);
  EXPECT_EQ(stop_.step(), 18U);
  EXPECT_EQ(Both(At(17), At(17)), Action::kCommit);
  EXPECT_TRUE(stop_.committed());
  EXPECT_EQ(stop_.step(), 18U);
}

TEST_F(StopAgreementTest, WhoHasPassedItMakesItLargerByTwiceAsMuchEachTime) {
  ASSERT_EQ(Both(At(17), At(16)), Action::kAsk);
  EXPECT_EQ(Both(At(18, false), At(17)), Action::kAsk);
  EXPECT_EQ(stop_.step(), 20U);
  EXPECT_EQ(Both(At(19), At(20, false)), Action::kAsk);
  EXPECT_EQ(stop_.step(), 24U);
  EXPECT_EQ(stop_.round(), 4U);
  EXPECT_EQ(Both(At(22), At(22)), Action::kCommit);
}

// A worker that was below the step in an earlier round may have passed it since; a larger step
// counts from the highest that was ever seen.
TEST_F(StopAgreementTest, NoRoundTakesAnAnswerToAnotherOne) {
  ASSERT_EQ(Both(At(17), At(16)), Action::kAsk);
  EXPECT_EQ(stop_.Add(now_, 0, 1, At(17)), Action::kNone);
  EXPECT_EQ(stop_.Add(now_, 0, 2, At(30, false)), Action::kNone);
  EXPECT_EQ(stop_.Add(now_, 0, 2, At(17)), Action::kNone);  // twice
  EXPECT_EQ(stop_.Add(now_, 1, 2, At(17)), Action::kAsk);
  EXPECT_EQ(stop_.step(), 32U);
}

TEST_F(StopAgreementTest, FastStepsBeginWithALargerMargin) {
  EXPECT_EQ(Both(At(100, true, absl::Milliseconds(1)), At(100, true, absl::Microseconds(900))),
            Action::kAsk);
  EXPECT_EQ(stop_.step(), 151U);
}

TEST_F(StopAgreementTest, WhoAsksForNoStepEndsIt) {
  EXPECT_EQ(stop_.Add(now_, 0, 1, At(5)), Action::kNone);
  EXPECT_EQ(stop_.Add(now_, 1, 1, {.heeds = false}), Action::kGiveUp);
  EXPECT_FALSE(stop_.active());
  EXPECT_THAT(stop_.why(), HasSubstr("docs/PROGRESS.md"));
}

TEST_F(StopAgreementTest, AStepThatIsTooFarAwayEndsIt) {
  EXPECT_EQ(Both(At(5, true, absl::Seconds(19)), At(5)), Action::kAsk);
  EXPECT_EQ(Both(At(6, false, absl::Seconds(19)), At(5)), Action::kGiveUp);
  EXPECT_THAT(stop_.why(), HasSubstr("--preempt_deadline"));
}

TEST_F(StopAgreementTest, AQuarterOfTheDeadlineIsForAgreeing) {
  EXPECT_EQ(stop_.deadline(), now_ + absl::Seconds(10));
  stop_.Hasten(now_ + absl::Seconds(20));
  stop_.Hasten(now_ + absl::Seconds(30));
  EXPECT_EQ(stop_.deadline(), now_ + absl::Seconds(5));
  EXPECT_EQ(stop_.OnTimer(now_ + absl::Seconds(4)), Action::kNone);
  EXPECT_EQ(stop_.OnTimer(now_ + absl::Seconds(5)), Action::kGiveUp);
  EXPECT_THAT(stop_.why(), HasSubstr("no agreement within 5"));
  EXPECT_TRUE(stop_.deadline().is_infinite());
}

TEST_F(StopAgreementTest, WhoseWorkersHaveEndedIsNotAwaited) {
  EXPECT_EQ(stop_.Add(now_, 0, 1, At(5)), Action::kNone);
  EXPECT_EQ(stop_.Drop(now_, 1), Action::kAsk);
  EXPECT_FALSE(stop_.awaits(1));
  EXPECT_EQ(stop_.Add(now_, 0, 2, At(5)), Action::kCommit);
}

TEST_F(StopAgreementTest, NobodyLeftToStop) {
  EXPECT_EQ(stop_.Drop(now_, 0), Action::kNone);
  EXPECT_EQ(stop_.Drop(now_, 1), Action::kGiveUp);
}

TEST_F(StopAgreementTest, StepsBeyondTheirRange) {
  EXPECT_EQ(Both(At(kProgressStepMax), At(5)), Action::kGiveUp);
}

}  // namespace
}  // namespace ddprun::rendezvous::stop_step_test
