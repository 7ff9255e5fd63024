#include "rendezvous/core/generation/membership_policy.h"

#include <gtest/gtest.h>

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
  struct PolicyRow {
    RoundCause cause;
    uint32_t present;
    int64_t now;
    Instant min_reached;
    Action action;
    int64_t until;
  };
  // A job of 2 to 4 nodes; the round began at 0.
  const PolicyRow rows[] = {
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
  for (const PolicyRow& row : rows) {
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
  struct PolicyRow {
    uint32_t members;
    uint32_t newcomers;
    bool any_succeeded;
    int64_t now;
    bool close;
    Instant until;
  };
  // A job of 1 to 4 nodes; the first newcomer came at 10.
  const PolicyRow rows[] = {
      {2, 0, false, 10, false, Instant::Infinite()}, {2, 1, false, 10, false, Seconds(40)},
      {2, 1, false, 40, true, Seconds(0)},           {2, 2, false, 10, true, Seconds(0)},
      {2, 2, true, 40, false, Instant::Infinite()},  {4, 2, false, 40, false, Instant::Infinite()},
  };
  for (const PolicyRow& row : rows) {
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

TEST(DecideForming, NothingStartsInThePauseBeforeARestart) {
  for (const uint32_t present : {1U, 2U, 4U}) {
    FormingInput input{
        .cause = RoundCause::kFault, .present = present, .now = Seconds(9), .began = Seconds(10)};
    const FormingDecision waiting = DecideForming(Spec(2, 4), input);
    EXPECT_EQ(waiting.action, Action::kWait);
    EXPECT_EQ(waiting.until, Seconds(10));
    input.now = Seconds(10);
    EXPECT_EQ(DecideForming(Spec(2, 4), input).action, present < 2 ? Action::kWait : Action::kForm);
  }
}

}  // namespace
}  // namespace ddprun::rendezvous
