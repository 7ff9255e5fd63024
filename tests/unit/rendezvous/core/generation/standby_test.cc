#include "rendezvous/core/generation/standby.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::rendezvous::standby_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

JobSpec Spec() {
  JobSpec spec;
  spec.nodes_min = 2;
  spec.nodes_max = 4;
  return spec;
}

TEST(StandbyFor, WhileTooFewAreHere) {
  const Waiting waiting{.candidates = 1, .missing = "node rank 1", .after = "a crash"};
  const Standby standby = StandbyFor(Spec(), waiting, {});
  EXPECT_EQ(standby.reason,
            "1 of 2 nodes have joined; waiting for 1 more (node rank 1) after a crash");
  EXPECT_FALSE(standby.spare);
  EXPECT_EQ(standby.nodes_present, 1U);
  EXPECT_EQ(standby.nodes_wanted, 2U);
}

TEST(StandbyFor, WhileMoreAreWaitedFor) {
  const Standby standby = StandbyFor(Spec(), {.candidates = 3}, {});
  EXPECT_EQ(standby.reason,
            "3 of at most 4 nodes have joined, enough to start; waiting up to 30 s for more");
  EXPECT_EQ(standby.nodes_wanted, 4U);
}

TEST(StandbyFor, APauseIsToldAsItIs) {
  const Waiting waiting{.reason = "restart 1 of 3 after a pause", .candidates = 4, .pausing = true};
  EXPECT_EQ(StandbyFor(Spec(), waiting, {}).reason, "restart 1 of 3 after a pause");
}

TEST(StandbyFor, WhileTheOthersRun) {
  Waiting waiting{.phase = JobPhase::kRunning, .members = 3, .candidates = 1, .grows = true};
  EXPECT_EQ(StandbyFor(Spec(), waiting, {}).reason,
            "the job runs on 3 nodes and takes this one in at most 30 s after the first newcomer");
  EXPECT_FALSE(StandbyFor(Spec(), waiting, {}).spare);
  waiting.grows = false;
  EXPECT_THAT(StandbyFor(Spec(), waiting, {}).reason, HasSubstr("this one is a spare"));
  EXPECT_TRUE(StandbyFor(Spec(), waiting, {}).spare);
  EXPECT_EQ(StandbyFor(Spec(), waiting, {}).nodes_present, 3U) << "members, not candidates";
}

TEST(StandbyFor, TheStrongestHindranceIsTold) {
  Waiting waiting{.phase = JobPhase::kRunning, .members = 2, .grows = true};
  Hindrance hindrance{.cleaning = Generation(3), .claim = 1, .holder = "host1", .failures = 4};
  EXPECT_EQ(StandbyFor(Spec(), waiting, hindrance).reason,
            "this node's workers of generation 3 must end first");
  hindrance.cleaning = Generation();
  EXPECT_EQ(StandbyFor(Spec(), waiting, hindrance).reason,
            "node rank 1 is held by host1, which is silent; waiting until it is back or lost");
  EXPECT_FALSE(StandbyFor(Spec(), waiting, hindrance).spare);
  hindrance.claim.reset();
  EXPECT_THAT(StandbyFor(Spec(), waiting, hindrance).reason,
              HasSubstr("left out (rule quarantine): 4 failures began here within 3600 s"));
  EXPECT_TRUE(StandbyFor(Spec(), waiting, hindrance).spare);
  waiting.phase = JobPhase::kForming;
  EXPECT_THAT(StandbyFor(Spec(), waiting, hindrance).reason, StartsWith("0 of 2 nodes"))
      << "it may have to step in";
}

TEST(StandbyFor, WhileAGenerationEnds) {
  const Waiting waiting{.phase = JobPhase::kClosing,
                        .reason = "b was lost",
                        .generation = Generation(2),
                        .members = 2};
  EXPECT_EQ(StandbyFor(Spec(), waiting, {}).reason, "generation 2 is ending: b was lost");
}

TEST(StandbyForDeath, NobodyWaitsAfterTheEnd) {
  EXPECT_DEATH(StandbyFor(Spec(), {.phase = JobPhase::kEnded}, {}), "after the end");
}

TEST(StandbyDue, KnowsWhomToNotify) {
  StandbyDue due;
  EXPECT_FALSE(due.any());
  due.Mark(3);
  due.Mark(1);
  EXPECT_TRUE(due.any());
  EXPECT_FALSE(due.all());
  EXPECT_THAT(due.nodes(), ElementsAre(3, 1));
  due.MarkAll();
  EXPECT_TRUE(due.all());
  due.MarkAll(false);
  EXPECT_FALSE(due.all());
  EXPECT_TRUE(due.any()) << "those that were marked by themselves still are";
  due.MarkAll();
  due.Clear();
  EXPECT_FALSE(due.any());
}

TEST(StandbyDueDeath, JoinOrdersBeginWithOne) {
  EXPECT_DEATH(StandbyDue().Mark(0), "begin with 1");
}

}  // namespace
}  // namespace ddprun::rendezvous::standby_test
