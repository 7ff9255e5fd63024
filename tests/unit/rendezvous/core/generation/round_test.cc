#include "rendezvous/core/generation/round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {
namespace {

using State = RoundMember::State;
using ::testing::ElementsAre;

constexpr Instant kFormed = Instant::FromNanoseconds(1'000'000'000);

// Nodes "a" and "b" with two workers each.
class RoundTest : public ::testing::Test {
 protected:
  RoundTest()
      : round_(Generation(3), kFormed, Members(), {.store_address = "a:1", .rule = "growth"}) {}
  ~RoundTest() override { EXPECT_EQ(round_.BrokenInvariant(), ""); }

  static std::vector<RoundMember> Members() {
    std::vector<RoundMember> members(2);
    for (uint32_t i = 0; i < 2; ++i) {
      members[i].node_order = i + 1;
      members[i].node_id = NodeId(i == 0 ? "a" : "b");
      members[i].worker_count = 2;
      members[i].placement = {.base_rank = 2 * i, .base_role_rank = 2 * i, .role_world_size = 4};
    }
    return members;
  }
  static WorkerFailure Failure(uint32_t local_rank, const std::string& message = "") {
    WorkerFailure failure;
    failure.local_rank = local_rank;
    failure.rank = 99;
    failure.generation = Generation(99);
    failure.message = message;
    return failure;
  }

  Round round_;
};

TEST_F(RoundTest, IsSettledWhenAllHaveStoppedAndAreThereOrGone) {
  round_.SetState(0, State::kStopped);
  EXPECT_FALSE(round_.settled());
  round_.SetState(1, State::kStopped);
  EXPECT_TRUE(round_.settled());
  round_.SetConnected(1, false);
  EXPECT_FALSE(round_.settled()) << "it is awaited until it is back or lost";
  EXPECT_EQ(round_.BrokenInvariant(), "");
  round_.SetNode(1, 0);
  round_.SetState(1, State::kLost);
  EXPECT_TRUE(round_.settled());
  EXPECT_TRUE(round_.any_gone());
}

TEST_F(RoundTest, AMemberThatWasDoneLeavesItsPlaceOpen) {
  round_.SetSucceeded(0, Instant());
  round_.SetSucceeded(0, Instant());
  EXPECT_EQ(round_.succeeded(), 1U);
  EXPECT_THAT(round_.NotSucceeded(), ElementsAre(1));
  EXPECT_FALSE(round_.IsVacant(0));
  round_.SetNode(0, 0);
  EXPECT_TRUE(round_.IsVacant(0));
  round_.SetState(0, State::kLost);
  EXPECT_FALSE(round_.IsVacant(0)) << "it was missed";
}

TEST_F(RoundTest, WhoRunsHalfAMinuteAfterTheOthersEndedIsNamedOnce) {
  EXPECT_TRUE(round_.TakeLaggards(kFormed + absl::Hours(1)).empty());
  round_.SetSucceeded(0, kFormed);
  EXPECT_TRUE(round_.TakeLaggards(kFormed + absl::Seconds(29)).empty());
  EXPECT_THAT(round_.TakeLaggards(kFormed + absl::Seconds(30)), ElementsAre(1));
  EXPECT_TRUE(round_.TakeLaggards(kFormed + absl::Hours(1)).empty());
}

TEST_F(RoundTest, KnowsWhichRanksOfOtherNodesHadLeft) {
  round_.AddLeft(1, {1, 7});  // there is no local rank 7
  EXPECT_THAT(round_.LeftBeside(NodeId("a")), ElementsAre(3));
  EXPECT_TRUE(round_.LeftBeside(NodeId("b")).empty());
}

TEST_F(RoundTest, TellsOnceThatAllHaveStarted) {
  EXPECT_FALSE(round_.SetStarted(0));
  EXPECT_FALSE(round_.SetStarted(0));
  EXPECT_TRUE(round_.SetStarted(1));
  EXPECT_FALSE(round_.SetStarted(1));
}

TEST_F(RoundTest, AFailureHasTheRankThatItsSenderHas) {
  EXPECT_FALSE(round_.AddFailure(1, Failure(2), kFormed)) << "there is no such worker";
  WorkerFailure said = Failure(1);
  said.texts_left_out = true;
  EXPECT_TRUE(round_.AddFailure(1, said, kFormed));
  ASSERT_EQ(round_.failures().size(), 1U);
  EXPECT_FALSE(round_.failures()[0].failure.texts_left_out) << "nobody has left any out";
  EXPECT_EQ(round_.failures()[0].failure.rank, 3U);
  EXPECT_EQ(round_.failures()[0].failure.generation, Generation(3));
  const std::string text(kTextBytesMax + 1, 'x');
  EXPECT_TRUE(round_.AddFailure(1, Failure(1, text), kFormed + absl::Seconds(1)));
  ASSERT_EQ(round_.failures().size(), 1U) << "it is completed";
  EXPECT_EQ(round_.failures()[0].failure.message.size(), kTextBytesMax);
  EXPECT_EQ(round_.failures()[0].arrival, kFormed);
}

TEST_F(RoundTest, EachMemberIsToldItsPlace) {
  const Assignment first = round_.AssignmentOf(0, 17);
  EXPECT_EQ(first.generation, Generation(3));
  EXPECT_EQ(first.world_size, 4U);
  EXPECT_EQ(first.store_address, "") << "it is on that node";
  EXPECT_EQ(first.redone_to, 17U);
  EXPECT_EQ(first.rule, "growth");
  const Assignment second = round_.AssignmentOf(1, 17);
  EXPECT_EQ(second.store_address, "a:1");
  EXPECT_EQ(second.base_rank, 2U);
  EXPECT_EQ(second.group_world_size, 2U);
  EXPECT_EQ(round_.RanksText(), "a=[0..1] b=[2..3]");
}

// Each invariant of the members, broken by hand.
TEST(Round, TheCheckSeesWhatIsBroken) {
  std::vector<RoundMember> members(1);
  members[0].worker_count = 1;
  members[0].placement.base_rank = 1;
  EXPECT_EQ(Round(Generation(1), kFormed, members, {}).BrokenInvariant(),
            "ranks are not contiguous");
  members[0].placement.base_rank = 0;
  Round round(Generation(1), kFormed, members, {});
  round.AddFailure(0, WorkerFailure{}, kFormed - absl::Seconds(1));
  EXPECT_EQ(round.BrokenInvariant(), "a failure before the generation began");
  members[0].node_order = 1;
  Round lost(Generation(1), kFormed, members, {});
  lost.SetState(0, State::kLost);
  EXPECT_EQ(lost.BrokenInvariant(), "a lost member with a node");
  members[0].started = true;
  EXPECT_EQ(Round(Generation(1), kFormed, members, {}).BrokenInvariant(),
            "the number of started members is wrong");
  members[0].started = false;
  members[0].succeeded = true;
  EXPECT_EQ(Round(Generation(1), kFormed, members, {}).BrokenInvariant(),
            "the number of members that succeeded is wrong");
  members[0].succeeded = false;
  members[0].settled = true;
  EXPECT_EQ(Round(Generation(1), kFormed, members, {}).BrokenInvariant(),
            "a member is settled that is awaited, or the reverse");
}

TEST(RoundDeath, AGenerationHasANumberAndNodesAndALossIsForGood) {
  std::vector<RoundMember> members(1);
  EXPECT_DEATH(Round(Generation(), kFormed, members, {}), "numbered from 1");
  EXPECT_DEATH(Round(Generation(1), kFormed, {}, {}), "without nodes");
  Round round(Generation(1), kFormed, members, {});
  round.SetState(0, State::kLeft);
  EXPECT_DEATH(round.SetState(0, State::kRunning), "gone");
}

}  // namespace
}  // namespace ddprun::rendezvous
