#include "rendezvous/core/membership_policy.h"

#include <gtest/gtest.h>

#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous {
namespace {

using Action = FormingDecision::Action;

Instant Seconds(int64_t seconds) { return Instant::FromNanoseconds(seconds * 1'000'000'000); }

JobSpec Spec(uint32_t least, uint32_t most) {
  JobSpec spec;
  spec.nodes_min = least;
  spec.nodes_max = most;
  spec.max_restarts = 1;
  spec.join_timeout = absl::Seconds(600);
  spec.last_call_timeout = absl::Seconds(30);
  return spec;
}

TEST(DecideForming, TheTable) {
  const Instant never = Instant::Infinite();
  struct Row {
    RoundCause cause;
    uint32_t present;
    int64_t now;
    Instant min_reached;
    Action action;
    int64_t until;
  };
  // A job of 2 to 4 nodes; the round began at 0.
  const Row rows[] = {
      {RoundCause::kFirst, 1, 10, never, Action::kWait, 600},
      {RoundCause::kFirst, 1, 600, never, Action::kGiveUp, 0},
      {RoundCause::kFirst, 2, 10, Seconds(10), Action::kWait, 40},
      {RoundCause::kFirst, 3, 40, Seconds(10), Action::kForm, 0},
      {RoundCause::kFirst, 4, 10, Seconds(10), Action::kForm, 0},
      {RoundCause::kFirst, 5, 10, Seconds(10), Action::kForm, 0},
      {RoundCause::kFirst, 2, 590, Seconds(590), Action::kWait, 600},
      {RoundCause::kFirst, 2, 600, Seconds(590), Action::kForm, 0},
      {RoundCause::kFault, 1, 10, never, Action::kWait, 600},
      {RoundCause::kFault, 2, 10, Seconds(10), Action::kForm, 0},
      {RoundCause::kFault, 0, 600, never, Action::kGiveUp, 0},
      {RoundCause::kGrowth, 3, 10, Seconds(10), Action::kForm, 0},
      {RoundCause::kGrowth, 1, 10, never, Action::kWait, 600},
  };
  for (const Row& row : rows) {
    const FormingDecision decision = DecideForming(Spec(2, 4), {.cause = row.cause,
                                                                .present = row.present,
                                                                .now = Seconds(row.now),
                                                                .began = Seconds(0),
                                                                .min_reached = row.min_reached});
    EXPECT_EQ(decision.action, row.action) << row.present << " at " << row.now;
    if (row.action == Action::kWait) {
      EXPECT_EQ(decision.until, Seconds(row.until)) << row.present << " at " << row.now;
    }
  }
}

TEST(DecideGrowth, TheTable) {
  struct Row {
    uint32_t members;
    uint32_t newcomers;
    bool any_succeeded;
    int64_t now;
    bool close;
    Instant until;
  };
  // A job of 1 to 4 nodes; the first newcomer came at 10.
  const Row rows[] = {
      {2, 0, false, 10, false, Instant::Infinite()}, {2, 1, false, 10, false, Seconds(40)},
      {2, 1, false, 40, true, Seconds(0)},           {2, 2, false, 10, true, Seconds(0)},
      {2, 2, true, 40, false, Instant::Infinite()},  {4, 2, false, 40, false, Instant::Infinite()},
  };
  for (const Row& row : rows) {
    const GrowthDecision decision = DecideGrowth(Spec(1, 4), {.members = row.members,
                                                              .newcomers = row.newcomers,
                                                              .any_succeeded = row.any_succeeded,
                                                              .now = Seconds(row.now),
                                                              .newcomers_since = Seconds(10)});
    EXPECT_EQ(decision.close, row.close) << row.members << "+" << row.newcomers;
    if (!row.close) {
      EXPECT_EQ(decision.until, row.until) << row.members << "+" << row.newcomers;
    }
  }
}

TEST(DecideBlame, AFailureCostsARestartUntilTheyAreUsedUp) {
  const BlameDecision first = DecideBlame(Spec(1, 2), {}, {});
  EXPECT_EQ(first.blame, Blame::kWorker);
  EXPECT_FALSE(first.spent);
  EXPECT_EQ(first.budget.restart_count, 1u);
  const BlameDecision second = DecideBlame(Spec(1, 2), first.budget, {});
  EXPECT_TRUE(second.spent);
  EXPECT_EQ(second.budget.restart_count, 1u);
}

TEST(DecideBlame, ALossMakesFailuresConsequences) {
  const BlameDecision decision =
      DecideBlame(Spec(1, 2), {.restart_count = 1}, {.any_gone = true, .for_growth = true});
  EXPECT_EQ(decision.blame, Blame::kMembership);
  EXPECT_FALSE(decision.spent);
  EXPECT_EQ(decision.budget.restart_count, 1u);
  EXPECT_EQ(decision.budget.membership_changes, 1u);
}

TEST(DecideBlame, GrowthCostsNothing) {
  const BlameDecision decision =
      DecideBlame(Spec(1, 2), {.restart_count = 1}, {.for_growth = true});
  EXPECT_EQ(decision.blame, Blame::kGrowth);
  EXPECT_FALSE(decision.spent);
  EXPECT_EQ(decision.budget.restart_count, 1u);
}

TEST(DecideBlame, MembershipChangesAreBoundedAndRefilledByProgress) {
  Budget budget;
  for (uint32_t i = 0; i < kMembershipChangesMax; ++i) {
    const BlameDecision decision = DecideBlame(Spec(1, 2), budget, {.any_gone = true});
    ASSERT_FALSE(decision.spent) << i;
    budget = decision.budget;
  }
  EXPECT_TRUE(DecideBlame(Spec(1, 2), budget, {.any_gone = true}).spent);
  const BlameDecision refilled =
      DecideBlame(Spec(1, 2), budget, {.any_gone = true, .uptime = kProgressUptime});
  EXPECT_FALSE(refilled.spent);
  EXPECT_EQ(refilled.budget.membership_changes, 1u);
}

}  // namespace
}  // namespace ddprun::rendezvous
