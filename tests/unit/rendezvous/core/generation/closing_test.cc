#include "rendezvous/core/generation/closing.h"

#include <gtest/gtest.h>

namespace ddprun::rendezvous::closing_test {
namespace {

JobSpec Spec() {
  JobSpec spec;
  spec.max_restarts = 2;
  return spec;
}

// Two nodes with a worker each.
Round TwoNodes() {
  std::vector<RoundMember> members(2);
  members[0].node_id = NodeId("a");
  members[1].node_id = NodeId("b");
  members[0].worker_count = members[1].worker_count = 1;
  members[1].placement.base_rank = 1;
  return Round(Generation(1), Instant(), std::move(members), {});
}

WorkerFailure Crash() {
  WorkerFailure failure;
  failure.node_id = NodeId("b");
  failure.hostname = "hostb";
  failure.exit_code = 1;
  failure.message = "ValueError: bad option";
  return failure;
}

Closing Begun(const Trigger& trigger) {
  Closing closing;
  closing.Open();
  closing.Begin(Instant(), trigger, absl::Seconds(5));
  return closing;
}

TEST(Closing, AFailureIsChargedAndItsNodeBlamed) {
  Round round = TwoNodes();
  round.AddFailure(1, Crash(), Instant());
  Closing closing = Begun({.reason = "the trigger", .name = "worker_failed"});
  const Settlement settled = closing.Settle(Spec(), round, 0, 0);
  EXPECT_EQ(settled.decision.blame, Blame::kWorker);
  EXPECT_EQ(settled.why, "worker rank 1 on hostb exited with code 1: ValueError: bad option");
  EXPECT_EQ(settled.blamed, NodeId("b"));
  EXPECT_EQ(settled.blamed_host, "hostb");
  EXPECT_EQ(closing.history().restart_count, 1U);
  EXPECT_EQ(WithDecision(settled), settled.why + " (restart 1 of 2)");
}

// Said, and nothing else: the job goes on for as long as it has restarts.
TEST(Closing, TheSameFailureAgainAndAgainIsSaid) {
  JobSpec spec = Spec();
  spec.max_restarts = 4;
  Round round = TwoNodes();
  round.AddFailure(1, Crash(), Instant());
  Closing closing;
  const std::string once = "worker rank 1 on hostb exited with code 1: ValueError: bad option";
  for (const char* more :
       {"", "", "; the same failure 3 times in a row", "; the same failure 4 times in a row"}) {
    closing.Open();
    closing.Begin(Instant(), {.reason = "the trigger", .name = "worker_failed"}, absl::Seconds(5));
    const Settlement settled = closing.Settle(spec, round, 0, 0);
    EXPECT_EQ(settled.why, once + more);
    EXPECT_FALSE(settled.decision.verdict.has_value());
  }
  closing.Open();
  closing.Begin(Instant(), {.reason = "the trigger", .name = "worker_failed"}, absl::Seconds(5));
  EXPECT_EQ(WithDecision(closing.Settle(spec, round, 0, 0)),
            once + "; the same failure 5 times in a row (all 4 restarts are used up)");
}

TEST(Closing, TheFirstLossIsTheReasonWhateverTriggeredTheEnd) {
  Round round = TwoNodes();
  round.AddFailure(1, Crash(), Instant());
  Closing closing = Begun({.reason = "rank 1 crashed", .name = "worker_failed"});
  closing.NoteLoss("a was lost");
  closing.NoteLoss("b was lost");
  round.SetState(0, RoundMember::State::kLost);
  const Settlement settled = closing.Settle(Spec(), round, 0, 0);
  EXPECT_EQ(settled.decision.blame, Blame::kMembership);
  EXPECT_EQ(settled.why, "a was lost");
  EXPECT_FALSE(settled.blamed.has_value()) << "failures are consequences of a loss";
  EXPECT_EQ(closing.history().restart_count, 0U);
  EXPECT_EQ(closing.history().membership_changes, 1U);
}

TEST(Closing, GrowthIsFreeAndALossOfAnotherGenerationIsForgotten) {
  Closing closing;
  closing.NoteLoss("a was lost");
  closing.Open();
  closing.Begin(Instant(), {.reason = "1 node joined", .name = "growth", .for_growth = true}, {});
  EXPECT_EQ(closing.reason(), "1 node joined");
  const Settlement settled = closing.Settle(Spec(), TwoNodes(), 0, 0);
  EXPECT_EQ(settled.decision.blame, Blame::kGrowth);
  EXPECT_EQ(settled.why, "1 node joined");
  EXPECT_EQ(WithDecision(settled), "1 node joined");
  EXPECT_EQ(closing.BrokenInvariant(), "");
  closing.Open();
  EXPECT_EQ(closing.BrokenInvariant(), "");
}

// Otherwise a node that comes and goes could end generations for ever.
TEST(Closing, GrowthForNodesThatAreGoneIsAMembershipChange) {
  Closing closing;
  closing.Open();
  closing.Begin(Instant(), {.reason = "2 nodes joined", .name = "growth", .for_growth = true}, {});
  const Settlement settled = closing.Settle(Spec(), TwoNodes(), 0, 2);
  EXPECT_EQ(settled.decision.blame, Blame::kMembership);
  EXPECT_EQ(settled.why, "2 newcomers were gone before taking part");
  EXPECT_EQ(closing.history().membership_changes, 1U);
  EXPECT_EQ(closing.history().restart_count, 0U);
}

TEST(Closing, NobodyWaitedForNewcomersInAnEndThatWasNotForThem) {
  Round round = TwoNodes();
  round.AddFailure(1, Crash(), Instant());
  Closing closing = Begun({.reason = "rank 1 crashed", .name = "worker_failed"});
  EXPECT_EQ(closing.Settle(Spec(), round, 0, 1).decision.blame, Blame::kWorker);
}

TEST(ClosingDeath, AGenerationEndsOnceAndNotBeforeItBegan) {
  Closing closing;
  EXPECT_DEATH(closing.Settle(Spec(), TwoNodes(), 0, 0), "not to end");
  EXPECT_DEATH(closing.Begin(Instant(), {.reason = "r", .name = "n"}, -absl::Seconds(1)), "uptime");
  closing.Begin(Instant(), {.reason = "r", .name = "n"}, {});
  EXPECT_DEATH(closing.Begin(Instant(), {.reason = "r", .name = "n"}, {}), "ends once");
}

}  // namespace
}  // namespace ddprun::rendezvous::closing_test
