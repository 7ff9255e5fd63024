#include "rendezvous/core/generation/hang_inquiry.h"

#include <gtest/gtest.h>

#include <utility>

namespace ddprun::rendezvous::hang_inquiry_test {
namespace {

using Ranks = std::vector<uint32_t>;

HangReport Report(bool suspect, Activity activity = Activity::kStill, uint64_t step = 7) {
  return {.workers = {{.local_rank = 0,
                       .phase = ProgressPhase::kTrain,
                       .step = step,
                       .suspect = suspect,
                       .activity = activity,
                       .where = "futex"}},
          .sample = absl::Milliseconds(300)};
}

// Three nodes with two workers each.
class HangInquiryTest : public ::testing::Test {
 protected:
  HangInquiryTest() : round_(Generation(4), Instant(), Members(), {}) {}

  static std::vector<RoundMember> Members() {
    std::vector<RoundMember> members(3);
    for (uint32_t i = 0; i < 3; ++i) {
      members[i].node_order = i + 1;
      members[i].worker_count = 2;
      members[i].placement.base_rank = 2 * i;
    }
    return members;
  }
  HangStep Add(uint32_t group_rank, HangReport report) {
    HangStep step = inquiry_.Add(now_, round_, group_rank, std::move(report));
    EXPECT_EQ(inquiry_.BrokenInvariant(&round_), "");
    return step;
  }

  Instant now_ = Instant() + absl::Seconds(100);
  Round round_;
  HangInquiry inquiry_;
};

TEST_F(HangInquiryTest, ASuspicionAsksTheOthersOnce) {
  EXPECT_TRUE(Add(0, Report(false)).ask.empty());
  EXPECT_FALSE(inquiry_.open()) << "nobody is suspect";
  EXPECT_EQ(Add(0, Report(true)).ask, Ranks({1, 2}));
  EXPECT_TRUE(inquiry_.open());
  EXPECT_TRUE(Add(1, Report(true)).ask.empty()) << "another's suspicion is an answer";
}

TEST_F(HangInquiryTest, ASuspicionThatIsRepeatedAsksWhoIsMissingNotTooOften) {
  Add(0, Report(true));
  Add(1, Report(false));
  EXPECT_TRUE(Add(0, Report(true)).ask.empty()) << "they have just been asked";
  now_ = now_ + absl::Milliseconds(300);
  EXPECT_EQ(Add(0, Report(true)).ask, Ranks({2})) << "a question is lost with its stream";
}

TEST_F(HangInquiryTest, WhoIsDoneOrGoneIsNotAsked) {
  round_.SetSucceeded(1, Instant());
  round_.SetNode(2, 0);
  EXPECT_TRUE(Add(0, Report(true)).ask.empty());
}

TEST_F(HangInquiryTest, ItIsJudgedWhenAllHaveAnswered) {
  EXPECT_FALSE(Add(0, Report(true)).verdict.has_value());
  EXPECT_FALSE(Add(1, Report(true)).verdict.has_value());
  const HangStep step = Add(2, Report(true, Activity::kStill, 6));
  ASSERT_TRUE(step.verdict.has_value());
  EXPECT_EQ(step.verdict->guilty, Ranks({4})) << "it is behind";
  EXPECT_FALSE(inquiry_.open()) << "the next suspicion asks anew";
  EXPECT_EQ(Add(1, Report(true)).ask, Ranks({0, 2}));
}

TEST_F(HangInquiryTest, AStoppedWorkerIsGuiltyAtOnce) {
  const HangStep step = Add(1, Report(true, Activity::kStopped));
  ASSERT_TRUE(step.verdict.has_value());
  EXPECT_EQ(step.verdict->guilty, Ranks({2}));
  EXPECT_EQ(step.ask, Ranks({0, 2})) << "the question goes out first";
}

TEST_F(HangInquiryTest, AWorkerThatThereIsNotIsNoEvidence) {
  HangReport report = Report(true, Activity::kStopped);
  report.workers[0].local_rank = 2;
  EXPECT_FALSE(Add(0, report).verdict.has_value());
}

TEST_F(HangInquiryTest, EachNodeIsToldOfItsOwn) {
  round_.SetNode(2, 0);
  const auto orders =
      HangOrders({.guilty = {0, 2, 3, 5}, .evidence = "behind", .end = true}, round_);
  ASSERT_EQ(orders.size(), 2U) << "nobody is there to hear of rank 5";
  EXPECT_EQ(orders[0].first, 0U);
  EXPECT_EQ(orders[0].second.local_ranks, Ranks({0}));
  EXPECT_EQ(orders[1].first, 1U);
  EXPECT_EQ(orders[1].second.local_ranks, Ranks({0, 1}));
  EXPECT_EQ(orders[1].second.generation, Generation(4));
  EXPECT_EQ(orders[1].second.reason, "behind");
  EXPECT_TRUE(orders[1].second.end);
}

// A suspicion is passed on once, until its rank goes on.
TEST_F(HangInquiryTest, ASuspicionIsPassedOnOnce) {
  const auto judge = [this] {
    Add(0, Report(true));
    Add(1, Report(true));
    return Add(2, Report(true, Activity::kStill, 6)).verdict;
  };
  const std::optional<HangVerdict> first = judge();
  ASSERT_TRUE(first.has_value());
  EXPECT_FALSE(first->end);
  EXPECT_FALSE(judge().has_value());
  Add(2, Report(false));
  EXPECT_TRUE(judge().has_value()) << "the rank holds up the others again";
  inquiry_.Close();
  EXPECT_TRUE(judge().has_value()) << "another generation";
}

TEST_F(HangInquiryTest, AnExpiredSuspicionEndsHoweverOftenItWasNamed) {
  HangReport behind = Report(true, Activity::kStill, 6);
  Add(0, Report(true));
  Add(1, Report(true));
  EXPECT_FALSE(Add(2, behind).verdict->end);
  behind.workers[0].expired = true;
  Add(0, Report(true));
  Add(1, Report(true));
  EXPECT_TRUE(Add(2, behind).verdict->end);
}

// Nodes report at different moments: only what two inquiries show was true at one moment.
TEST_F(HangInquiryTest, AProofHoldsTheSecondTime) {
  HangReport locked = Report(true);
  locked.workers[0].deadlocked = true;
  const auto judge = [this](HangReport last) {
    Add(0, Report(true));
    Add(1, Report(true));
    return Add(2, std::move(last)).verdict;
  };
  EXPECT_FALSE(judge(locked)->end);
  EXPECT_FALSE(judge(Report(true)).has_value()) << "in between it was none";
  EXPECT_FALSE(judge(locked).has_value());
  const std::optional<HangVerdict> verdict = judge(locked);
  ASSERT_TRUE(verdict.has_value());
  EXPECT_TRUE(verdict->end);
  EXPECT_EQ(verdict->guilty, Ranks({4}));
}

TEST_F(HangInquiryTest, ReportsOfAnotherRoundAreSeen) {
  Add(2, Report(true));
  std::vector<RoundMember> one = Members();
  one.resize(1);
  const Round smaller(Generation(5), Instant(), one, {});
  EXPECT_EQ(inquiry_.BrokenInvariant(&smaller), "a report of no member");
  inquiry_.Close();
  EXPECT_EQ(inquiry_.BrokenInvariant(&smaller), "");
  EXPECT_DEATH(inquiry_.Add(now_, smaller, 1, Report(true)), "no member");
}

}  // namespace
}  // namespace ddprun::rendezvous::hang_inquiry_test
