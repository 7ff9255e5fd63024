#include "rendezvous/core/members/silence.h"

#include <gtest/gtest.h>

#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous::silence_test {
namespace {

Instant At(int64_t seconds) { return Instant() + absl::Seconds(seconds); }

JobSpec Spec() {
  JobSpec spec;
  spec.nodes_min = 2;
  spec.nodes_max = 3;
  return spec;
}

// Silent since 100 s, for a lease of 5 s.
SilenceInput Silent(uint32_t others, int64_t loss) {
  return {.now = At(105), .since = At(100), .others = others, .loss = absl::Seconds(loss)};
}

TEST(Silence, IsBorneForTheJoinTimeoutWhereTheOthersAreTooFew) {
  const SilenceDecision decision = DecideSilence(Spec(), Silent(1, 0));
  EXPECT_FALSE(decision.is_lost);
  EXPECT_EQ(decision.until, At(100) + Spec().join_timeout);
  EXPECT_EQ(decision.why, SilenceDecision::Why::kNeeded);
}

TEST(Silence, IsBorneForWhatTheLossWouldCost) {
  EXPECT_EQ(DecideSilence(Spec(), Silent(2, 20)).until, At(120));
  EXPECT_EQ(DecideSilence(Spec(), Silent(2, 3600)).until, At(100) + kSilenceMax);
  EXPECT_TRUE(DecideSilence(Spec(), Silent(2, 3)).is_lost) << "the lease was longer";
}

TEST(Silence, IsProofWhereTheUserChoseTheLease) {
  JobSpec spec = Spec();
  spec.lease_is_proof = true;
  EXPECT_TRUE(DecideSilence(spec, Silent(1, 20)).is_lost);
}

TEST(Silence, OfOneWhoseServiceEndedIsBorneOnlyWhereItIsNeeded) {
  SilenceInput gone = Silent(2, 20);
  gone.is_likely_gone = true;
  EXPECT_TRUE(DecideSilence(Spec(), gone).is_lost);
  gone.others = 1;
  EXPECT_FALSE(DecideSilence(Spec(), gone).is_lost);
}

TEST(Silence, EndsWhenAnotherAgentIsThereForIt) {
  SilenceInput replaced = Silent(1, 20);
  replaced.is_replaced = true;
  EXPECT_TRUE(DecideSilence(Spec(), replaced).is_lost);
}

}  // namespace
}  // namespace ddprun::rendezvous::silence_test
