#include "rendezvous/core/generation/forming.h"

#include <gtest/gtest.h>

namespace ddprun::rendezvous::forming_test {
namespace {

using Action = FormingDecision::Action;

constexpr Instant kStart = Instant::FromNanoseconds(1'000'000'000);

JobSpec Spec() {
  JobSpec spec;
  spec.nodes_min = 2;
  spec.nodes_max = 4;
  spec.last_call_timeout = absl::Seconds(30);
  spec.join_timeout = absl::Seconds(600);
  return spec;
}

TEST(Forming, TheLastCallCountsFromWhenThereWereEnough) {
  Forming forming;
  forming.BeginFirst(kStart);
  const Instant later = kStart + absl::Seconds(10);
  forming.Watch(later, true);
  forming.Watch(later + absl::Seconds(5), true);
  EXPECT_EQ(forming.Decide(Spec(), 2, later).until, later + absl::Seconds(30));
  forming.Watch(later + absl::Seconds(6), false);
  forming.Watch(later + absl::Seconds(7), true);
  EXPECT_EQ(forming.Decide(Spec(), 2, later).until, later + absl::Seconds(37))
      << "again, because one of them was lost in between";
  EXPECT_EQ(forming.BrokenInvariant(later + absl::Seconds(7)), "");
  EXPECT_EQ(forming.BrokenInvariant(later), "enough nodes in the future");
}

TEST(Forming, TheFirstOneFormsByItsOwnRuleAndTheNextByTheOneThatEndedTheLast) {
  Forming forming;
  forming.BeginFirst(kStart);
  EXPECT_TRUE(forming.first());
  EXPECT_EQ(forming.Decide(Spec(), 4, kStart).rule, Rule::kAllNodes);
  forming.BeginNext(kStart, RoundCause::kFault, "n3 was lost", Rule::kMembershipChange, {});
  EXPECT_FALSE(forming.first());
  EXPECT_EQ(forming.why(), "n3 was lost");
  const FormingDecision decision = forming.Decide(Spec(), 2, kStart);
  EXPECT_EQ(decision.action, Action::kForm) << "after a fault the least number is enough";
  EXPECT_EQ(decision.rule, Rule::kMembershipChange);
  const FormingDecision too_few = forming.Decide(Spec(), 1, kStart + absl::Seconds(600));
  EXPECT_EQ(too_few.action, Action::kGiveUp);
  EXPECT_EQ(too_few.rule, Rule::kJoinTimeout);
}

TEST(Forming, NothingFormsInAPause) {
  Forming forming;
  forming.BeginFirst(kStart);
  EXPECT_FALSE(forming.pausing(kStart));
  forming.BeginNext(kStart, RoundCause::kFault, "a crash", Rule::kBackoff, absl::Seconds(2));
  const Instant end = kStart + absl::Seconds(2);
  EXPECT_TRUE(forming.pausing(kStart));
  EXPECT_EQ(forming.Decide(Spec(), 4, kStart).until, end);
  EXPECT_FALSE(forming.pausing(end));
  EXPECT_EQ(forming.Decide(Spec(), 4, end).action, Action::kForm);
}

TEST(Forming, RemembersTheLastRanksOnly) {
  Forming forming;
  forming.BeginFirst(kStart);
  std::vector<RoundMember> members(2);
  members[0].node_id = NodeId("a");
  members[1].node_id = NodeId("b");
  forming.BeginNext(kStart, RoundCause::kGrowth, "one joined", Rule::kGrowth, {});
  forming.RememberRanks(members);
  members.pop_back();
  forming.RememberRanks(members);
  EXPECT_EQ(forming.previous_ranks(), std::vector<NodeId>{NodeId("a")});
}

TEST(FormingDeath, TheFirstGenerationComesOnce) {
  Forming forming;
  EXPECT_DEATH(forming.BeginNext(kStart, RoundCause::kFirst, "", Rule::kAllNodes, {}), "already");
  forming.BeginNext(kStart, RoundCause::kFault, "a crash", Rule::kWorkerFailure, {});
  EXPECT_DEATH(forming.BeginFirst(kStart), "comes once");
}

}  // namespace
}  // namespace ddprun::rendezvous::forming_test
