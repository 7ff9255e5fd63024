#include "rendezvous/core/members/silence.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

Loss Describe(LossProof proof) {
  Node node;
  node.id = NodeId("a");
  node.info.hostname = "hosta";
  JobSpec spec;
  spec.lease = absl::Seconds(5);
  spec.stop_grace = absl::Seconds(30);
  return DescribeLoss(proof, node, spec, spec.lease);
}

TEST(DescribeLoss, WhoWasSilentMayComeBack) {
  EXPECT_TRUE(Describe(LossProof::kStreamClosed).refusal.ok());
  const Loss expired = Describe(LossProof::kLeaseExpired);
  EXPECT_TRUE(expired.refusal.ok());
  EXPECT_EQ(expired.goodbye.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(expired.goodbye.message()), HasSubstr("than the lease of 5 s"));
}

TEST(DescribeLoss, WhoLeftProcessesBehindOrWasReplacedMayNot) {
  const Loss unclean = Describe(LossProof::kUnclean);
  EXPECT_EQ(unclean.refusal.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(unclean.goodbye, unclean.refusal);
  EXPECT_THAT(std::string(unclean.refusal.message()),
              HasSubstr("node a on hosta couldn't end its processes of an old generation within "
                        "35 s"));
  const Loss superseded = Describe(LossProof::kSuperseded);
  EXPECT_EQ(superseded.refusal.code(), absl::StatusCode::kAborted);
  EXPECT_EQ(superseded.goodbye, superseded.refusal);
}

}  // namespace
}  // namespace ddprun::rendezvous
