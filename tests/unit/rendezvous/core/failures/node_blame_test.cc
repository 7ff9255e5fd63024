#include "rendezvous/core/failures/node_blame.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>

namespace ddprun::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

Instant Minutes(int64_t minutes) { return Instant::FromNanoseconds(minutes * 60 * 1'000'000'000); }

NodeBlame Make(uint32_t after, absl::Duration time) {
  NodeBlame blame;
  blame.SetRules({.quarantine_after = after, .quarantine_time = time});
  return blame;
}

TEST(NodeBlame, EnoughFailuresWithinTheTimeAreAQuarantineUntilOneIsForgotten) {
  const NodeId a("a");
  NodeBlame blame = Make(3, absl::Hours(1));
  for (const int64_t minute : {0, 10, 20}) {
    EXPECT_FALSE(blame.Quarantined(a, Minutes(minute)));
    blame.Add(a, "host0", Minutes(minute));
  }
  EXPECT_TRUE(blame.Quarantined(a, Minutes(20)));
  EXPECT_THAT(blame.QuarantinedNodes(Minutes(59)), ElementsAre(a));
  EXPECT_EQ(blame.NextRelease(Minutes(20)), Minutes(60));
  EXPECT_FALSE(blame.Quarantined(a, Minutes(60)));
  EXPECT_EQ(blame.Count(a, Minutes(60)), 2U);
  EXPECT_TRUE(blame.NextRelease(Minutes(60)).is_infinite());
  blame.Add(a, "host0", Minutes(61));
  EXPECT_TRUE(blame.Quarantined(a, Minutes(61)));
  EXPECT_EQ(blame.NextRelease(Minutes(61)), Minutes(70));
}

TEST(NodeBlame, FailuresFarApartAreNone) {
  NodeBlame blame = Make(2, absl::Hours(1));
  for (int64_t minute = 0; minute < 1000; minute += 60) {
    blame.Add(NodeId("a"), "host0", Minutes(minute));
    EXPECT_FALSE(blame.Quarantined(NodeId("a"), Minutes(minute)));
  }
}

TEST(NodeBlame, EachNodeHasItsOwn) {
  NodeBlame blame = Make(2, absl::Hours(1));
  for (const char* node : {"a", "b", "c", "b"}) blame.Add(NodeId(node), node, Minutes(1));
  EXPECT_THAT(blame.QuarantinedNodes(Minutes(1)), ElementsAre(NodeId("b")));
}

TEST(NodeBlame, KeepsOfEachNodeWhatCounts) {
  NodeBlame blame = Make(2, absl::Hours(1));
  for (const int64_t minute : {1, 2, 3}) blame.Add(NodeId("a"), "host0", Minutes(minute));
  EXPECT_EQ(blame.Count(NodeId("a"), Minutes(3)), 2U);
  EXPECT_EQ(blame.BrokenInvariant(), "");
  blame.Add(NodeId("a"), "host0", Minutes(2));
  EXPECT_EQ(blame.BrokenInvariant(), "failures go back");
  EXPECT_DEATH(blame.SetRules({}), "in the midst of a job");
}

TEST(NodeBlame, ZeroIsNever) {
  NodeBlame blame = Make(0, absl::Hours(1));
  for (int i = 0; i < 100; ++i) blame.Add(NodeId("a"), "host0", Minutes(1));
  EXPECT_FALSE(blame.Quarantined(NodeId("a"), Minutes(1)));
  EXPECT_THAT(blame.QuarantinedNodes(Minutes(1)), IsEmpty());
}

TEST(NodeBlame, ANewAgentOfTheHostInheritsWhereTheFormerIsGone) {
  for (const bool gone : {true, false}) {
    NodeBlame blame = Make(2, absl::Hours(1));
    for (int i = 0; i < 2; ++i) blame.Add(NodeId("host0#1"), "host0", Minutes(1));
    blame.Inherit(NodeId("host0#2"), "host0", [&](const NodeId&) { return !gone; });
    EXPECT_EQ(blame.Quarantined(NodeId("host0#2"), Minutes(2)), gone);
    EXPECT_EQ(blame.Quarantined(NodeId("host0#1"), Minutes(2)), !gone);
    blame.Inherit(NodeId("host1#1"), "host1", [](const NodeId&) { return false; });
    EXPECT_FALSE(blame.Quarantined(NodeId("host1#1"), Minutes(2)));
  }
}

TEST(LeaveOut, TheTable) {
  constexpr auto kWell = std::nullopt;
  using Counts = std::vector<std::optional<uint32_t>>;
  EXPECT_THAT(LeaveOut({kWell, 3, kWell}, 2), ElementsAre(0, 2));
  EXPECT_THAT(LeaveOut({kWell, 3, kWell}, 3), ElementsAre(0, 1, 2));
  EXPECT_THAT(LeaveOut({5, 3, kWell}, 2), ElementsAre(1, 2));
  EXPECT_THAT(LeaveOut({3, 3, 3}, 1), ElementsAre(0));
  EXPECT_THAT(LeaveOut({4, 3, kWell}, 1), ElementsAre(2));
  EXPECT_THAT(LeaveOut({3, 3}, 3), ElementsAre(0, 1));
  EXPECT_THAT(LeaveOut(Counts{}, 1), IsEmpty());
}

WorkerFailure Failure(const char* node) {
  WorkerFailure failure;
  failure.node_id = NodeId(node);
  failure.exit_code = 1;
  return failure;
}

TEST(BlamedNode, OnlyWhereTheEvidenceSaysSo) {
  EXPECT_EQ(BlamedNode({}), std::nullopt);
  EXPECT_EQ(BlamedNode({.failures = {Failure("a"), Failure("b")}, .ties = 1}), NodeId("a"));
  EXPECT_EQ(BlamedNode({.failures = {Failure("a"), Failure("a")}, .ties = 2}), NodeId("a"));
  EXPECT_EQ(BlamedNode({.failures = {Failure("a"), Failure("b")}, .ties = 2}), std::nullopt);
  WorkerFailure killed = Failure("a");
  killed.signal = SIGKILL;
  EXPECT_EQ(BlamedNode({.failures = {killed}, .ties = 1}), std::nullopt);
  killed.facts = {std::string(kOutOfMemoryFact) + "1 process"};
  EXPECT_EQ(BlamedNode({.failures = {killed}, .ties = 1}), NodeId("a"));
  WorkerFailure hung = Failure("a");
  hung.hung = true;
  EXPECT_EQ(BlamedNode({.failures = {hung}, .ties = 1}), NodeId("a"));
  hung.message = std::string("silent; ") + kStoppedEvidence;
  EXPECT_EQ(BlamedNode({.failures = {hung}, .ties = 1}), std::nullopt);
  WorkerFailure peer = Failure("a");
  peer.message = "Connection closed by peer";
  EXPECT_EQ(BlamedNode({.failures = {peer}, .ties = 1}), std::nullopt);
}

}  // namespace
}  // namespace ddprun::rendezvous
