#include "rendezvous/core/members/node.h"

#include <gtest/gtest.h>

#include <functional>

namespace ddprun::rendezvous::node_test {
namespace {

constexpr absl::Duration kLease = absl::Seconds(5);
constexpr absl::Duration kGrace = absl::Milliseconds(150);
constexpr Instant kNow = Instant::FromNanoseconds(1'000'000'000'000);

Node Connected() {
  Node node;
  node.order = 1;
  node.id = NodeId("a");
  node.info.hostname = "hosta";
  node.info.master_port = 29500;
  node.stream = StreamKey(1);
  node.Greet(kNow, kLease);
  return node;
}

Node Away() {
  Node node = Connected();
  node.stream.reset();
  node.MissStream(kNow, kGrace);
  return node;
}

TEST(Node, ItsLeaseCountsFromWhenTheProbeWasSent) {
  Node node = Connected();
  EXPECT_EQ(node.deadline(), kNow + kLease);
  const Instant sent = kNow + absl::Seconds(1);
  node.Renew(sent + absl::Seconds(2), sent, kLease);
  EXPECT_EQ(node.deadline(), sent + kLease);
  node.Renew(sent + absl::Seconds(3), kNow, kLease);
  EXPECT_EQ(node.deadline(), sent + kLease) << "an older probe proves nothing new";
  EXPECT_EQ(node.proof, sent);
  EXPECT_EQ(node.BrokenInvariant(), "");
}

TEST(Node, IsLiveWhileItSpeaks) {
  EXPECT_TRUE(Connected().IsLive(kNow + absl::Seconds(2), kLease));
  EXPECT_FALSE(Connected().IsLive(kNow + absl::Milliseconds(2001), kLease)) << "two probes";
  EXPECT_FALSE(Away().IsLive(kNow, kLease));
  EXPECT_FALSE(Connected().IsSilent(kNow + absl::Seconds(2), absl::Seconds(2)));
  EXPECT_TRUE(Connected().IsSilent(kNow + absl::Seconds(3), absl::Seconds(2)));
}

TEST(Node, AClosedStreamBeginsItsGraceAndANewOneEndsIt) {
  Node node = Connected();
  node.TakeStandby(Standby{.reason = "wait"});
  node.stream.reset();
  node.MissStream(kNow, kGrace);
  EXPECT_EQ(node.deadline(), kNow + kGrace);
  EXPECT_FALSE(node.standby.has_value()) << "the next stream gets it again";
  node.stream = StreamKey(2);
  node.Greet(kNow + absl::Seconds(1), kLease);
  EXPECT_EQ(node.deadline(), kNow + absl::Seconds(6));
  EXPECT_EQ(node.BrokenInvariant(), "");
}

TEST(Node, WithoutAGraceItsLeaseDecides) {
  Node node = Away();
  node.MissStream(kNow, std::nullopt);
  EXPECT_EQ(node.deadline(), kNow + kLease);
}

TEST(Node, EventsAreProcessedOnceAndInOrder) {
  Node node = Connected();
  EXPECT_EQ(node.TakeSequence(1), Node::Sequence::kNext);
  EXPECT_EQ(node.TakeSequence(1), Node::Sequence::kSeen);
  EXPECT_EQ(node.TakeSequence(3), Node::Sequence::kGap);
  EXPECT_EQ(node.TakeSequence(0), Node::Sequence::kGap) << "events have numbers";
  EXPECT_EQ(node.TakeSequence(2), Node::Sequence::kNext);
  EXPECT_EQ(node.processed, 2U);
}

TEST(Node, TheFirstStopBoundStands) {
  Node node = Connected();
  node.BeginCleaning(Generation(2), kNow + absl::Seconds(3));
  node.BeginCleaning(Generation(3), kNow + absl::Seconds(9));
  EXPECT_EQ(node.deadline(), kNow + absl::Seconds(3));
  node.EndStopping(29600);
  EXPECT_EQ(node.info.master_port, 29600U);
  EXPECT_EQ(node.cleaning, Generation());
  EXPECT_EQ(node.deadline(), kNow + kLease);
}

TEST(Node, AMemberThatNeverGotItsAssignmentShowsThatOnce) {
  Node node = Connected();
  EXPECT_FALSE(node.ShowsIdle(7)) << "it wasn't asked";
  node.AskIfIdle(7);
  EXPECT_FALSE(node.ShowsIdle(6));
  EXPECT_FALSE(node.ShowsIdle(8)) << "it may have come over another connection";
  EXPECT_TRUE(node.ShowsIdle(7));
  EXPECT_FALSE(node.ShowsIdle(7));
  node.AskIfIdle(7);
  node.BecomeMember(0);
  EXPECT_FALSE(node.ShowsIdle(7)) << "that was the last generation";
}

TEST(Node, ItsPortIsUsedOnce) {
  Node node = Connected();
  EXPECT_EQ(node.UsePort(), 29500U);
  EXPECT_EQ(node.UsePort(), 0U);
  NodeInfo said = node.info;
  said.address = "10.0.0.2";
  said.master_port = 29700;
  node.Update(said, /*idle=*/false);
  EXPECT_EQ(node.info.address, "10.0.0.2");
  EXPECT_EQ(node.info.master_port, 0U) << "its workers may still use the old one";
  node.Update(said, /*idle=*/true);
  EXPECT_EQ(node.info.master_port, 29700U);
}

TEST(Node, AStallOfTheServiceIsNobodysSilence) {
  Node node = Away();
  const Instant now = kNow + absl::Seconds(60);
  node.Extend(now, absl::Seconds(1), kLease, kGrace);
  EXPECT_EQ(node.grace_end, now + kGrace) << "a whole grace from now";
  EXPECT_EQ(node.lease_end, now + absl::Milliseconds(2250)) << "a probe and a pause from now";
  EXPECT_TRUE(node.stop_bound.is_infinite()) << "it has none";
  Node late = Connected();
  late.Extend(kNow + absl::Seconds(2), absl::Seconds(2), kLease, kGrace);
  EXPECT_EQ(late.lease_end, kNow + absl::Seconds(7));
}

TEST(Node, AfterTheEndNothingIsAwaited) {
  Node node = Away();
  node.BecomeMember(0);
  node.told.TakeProgress(kNow, Renewal{.nonce = 1, .progress = {4}}, 1);
  node.Retire();
  EXPECT_FALSE(node.group_rank.has_value());
  EXPECT_EQ(node.BrokenInvariant(), "") << "its progress was that of a rank";
  EXPECT_TRUE(node.deadline().is_infinite()) << "it has until the end of the farewell";
}

TEST(NodeTold, ALostGpuIsNewsOnce) {
  NodeTold told;
  const std::vector<GpuUse> lost = {{.index = 0}, {.index = 1, .lost = true}};
  EXPECT_EQ(told.TakeGpus(kNow, lost), std::vector<uint32_t>{1});
  EXPECT_TRUE(told.TakeGpus(kNow, lost).empty());
  EXPECT_TRUE(told.TakeGpus(kNow, {}).empty()) << "nothing new is reported";
  EXPECT_TRUE(told.TakeGpus(kNow, lost).empty());
  EXPECT_TRUE(told.TakeGpus(kNow, {{.index = 1}}).empty());
  EXPECT_EQ(told.TakeGpus(kNow, lost), std::vector<uint32_t>{1}) << "it was back in between";
}

TEST(NodeTold, ProgressHasAWordForEachWorkerAtMost) {
  NodeTold told;
  EXPECT_FALSE(told.TakeProgress(kNow, Renewal{.nonce = 1}, 2));
  EXPECT_TRUE(told.TakeProgress(kNow, Renewal{.nonce = 1, .progress = {4, 5, 6}}, 2));
  EXPECT_EQ(told.progress, (std::vector<uint64_t>{4, 5}));
}

// Each invariant, broken by hand.
TEST(Node, TheCheckSeesWhatIsBroken) {
  const std::pair<const char*, std::function<void(Node&)>> kBreaks[] = {
      {"without a name", [](Node& n) { n.order = 0; }},
      {"an open stream that closed", [](Node& n) { n.closed_at = kNow; }},
      {"a grace beside an open stream", [](Node& n) { n.grace_end = kNow; }},
      {"cleans up another generation",
       [](Node& n) {
         n.group_rank = 0;
         n.cleaning = Generation(1);
       }},
      {"a stop without a bound", [](Node& n) { n.cleaning = Generation(1); }},
      {"a member that waits",
       [](Node& n) {
         n.group_rank = 0;
         n.standby = Standby{};
       }},
      {"progress without a rank", [](Node& n) { n.told.progress = {1}; }},
      {"that nobody heard", [](Node& n) { n.proof = n.heard + absl::Seconds(1); }},
  };
  EXPECT_EQ(Connected().BrokenInvariant(), "");
  EXPECT_EQ(Away().BrokenInvariant(), "");
  for (const auto& [what, break_it] : kBreaks) {
    Node node = Connected();
    break_it(node);
    EXPECT_NE(node.BrokenInvariant().find(what), std::string::npos) << what;
  }
}

TEST(NodeDeath, VerbsRefuseWhatCantBe) {
  EXPECT_DEATH(Away().Greet(kNow, kLease), "stream");
  EXPECT_DEATH(Connected().MissStream(kNow, kGrace), "stream");
  EXPECT_DEATH(Connected().Renew(kNow, kNow + kLease, kLease), "before it was sent");
  EXPECT_DEATH(Connected().Resume(3), "stream");
  EXPECT_DEATH(Away().TakeStandby({}), "stream");
  EXPECT_DEATH(Connected().Extend(kNow, {}, kLease, kGrace), "stall");
  Node member = Connected();
  member.BecomeMember(0);
  EXPECT_DEATH(member.BecomeMember(1), "group_rank");
  EXPECT_DEATH(member.BeginCleaning(Generation(1), kNow), "group_rank");
}

}  // namespace
}  // namespace ddprun::rendezvous::node_test
