#include "rendezvous/core/generation/next_round.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::ElementsAre;

// Nodes "a", "b", … with two workers each.
class NextRoundTest : public ::testing::Test {
 protected:
  NextRoundTest() {
    spec_.nodes_min = 1;
    spec_.nodes_max = 2;
    spec_.restart.quarantine_after = 1;
    spec_.restart.quarantine_shrinks = true;
    blame_.SetRules(spec_.restart);
  }

  void Join(const std::string& id) {
    NodeInfo info;
    info.hostname = "host" + id;
    info.worker_count = 2;
    const Node& node = roster_.Add(NodeId(id), Incarnation(++joined_), info);
    roster_.Attach(node, StreamKey(joined_), StreamNumber(1), Instant(), absl::Seconds(5));
  }
  std::vector<std::string> Ranked(const std::vector<NodeId>& previous = {}) {
    choice_ = ChooseNodes(spec_, roster_, blame_, previous, Instant());
    std::vector<std::string> ids;
    for (const Node* node : choice_.ranked) ids.push_back(node->id.value());
    return ids;
  }

  JobSpec spec_;
  Roster roster_;
  NodeBlame blame_;
  Choice choice_;
  uint64_t joined_ = 0;
};

TEST_F(NextRoundTest, AtMostAsManyAsTheJobTakesSurvivorsFirst) {
  for (const char* id : {"a", "b", "c"}) Join(id);
  EXPECT_THAT(Ranked(), ElementsAre("a", "b"));
  EXPECT_THAT(Ranked({NodeId("c"), NodeId("gone")}), ElementsAre("c", "a"));
}

TEST_F(NextRoundTest, WhoCouldNotStartIsNoCandidate) {
  for (const char* id : {"a", "b"}) Join(id);
  roster_.Detach(*roster_.table().FindById(NodeId("a")));
  EXPECT_THAT(Ranked(), ElementsAre("b"));
}

TEST_F(NextRoundTest, AQuarantinedNodeIsLeftOutUntilItIsNeeded) {
  for (const char* id : {"a", "b", "c"}) Join(id);
  blame_.Add(NodeId("a"), "hosta", Instant());
  EXPECT_THAT(Ranked(), ElementsAre("b", "c"));
  ASSERT_EQ(choice_.left_out.size(), 1U);
  EXPECT_EQ(choice_.left_out[0].node->id, NodeId("a"));
  EXPECT_EQ(choice_.left_out[0].failures, 1U);
  spec_.nodes_min = spec_.nodes_max = 3;
  EXPECT_THAT(Ranked(), ElementsAre("a", "b", "c"));
  EXPECT_TRUE(choice_.left_out.empty());
}

TEST_F(NextRoundTest, ByDefaultAQuarantinedNodeMakesRoomOnlyForASpare) {
  spec_.restart.quarantine_shrinks = false;
  for (const char* id : {"a", "b"}) Join(id);
  blame_.Add(NodeId("a"), "hosta", Instant());
  EXPECT_THAT(Ranked(), ElementsAre("a", "b")) << "a guess costs no node";
  EXPECT_TRUE(choice_.left_out.empty());
  EXPECT_EQ(CountNewcomers(spec_, roster_, blame_, Instant()).present, 2U);
  Join("c");
  EXPECT_THAT(Ranked(), ElementsAre("b", "c"));
  EXPECT_EQ(choice_.left_out.size(), 1U);
}

TEST_F(NextRoundTest, AQuarantinedNodeIsNoNewcomer) {
  for (const char* id : {"a", "b"}) Join(id);
  const auto present = [this] { return CountNewcomers(spec_, roster_, blame_, Instant()).present; };
  EXPECT_EQ(present(), 2U);
  blame_.Add(NodeId("a"), "hosta", Instant());
  blame_.Add(NodeId("gone"), "hostg", Instant());
  EXPECT_EQ(present(), 1U);
  roster_.Detach(*roster_.table().FindById(NodeId("a")));
  EXPECT_EQ(present(), 1U) << "it couldn't start anyhow";
}

TEST_F(NextRoundTest, ANewcomerCountsWhenItHasAnswered) {
  for (const char* id : {"a", "b"}) Join(id);
  const auto answering = [this] {
    return CountNewcomers(spec_, roster_, blame_, Instant()).answering;
  };
  EXPECT_EQ(answering(), 0U);
  for (const char* id : {"a", "b"}) {
    roster_.Change(*roster_.table().FindById(NodeId(id)),
                   [](Node& node) { node.Renew(Instant(), Instant(), absl::Seconds(5)); });
  }
  EXPECT_EQ(answering(), 2U);
  blame_.Add(NodeId("a"), "hosta", Instant());
  EXPECT_EQ(answering(), 1U);
  roster_.Detach(*roster_.table().FindById(NodeId("b")));
  EXPECT_EQ(answering(), 0U);
  EXPECT_EQ(roster_.BrokenInvariant(), "");
}

TEST_F(NextRoundTest, PlacesAreContiguous) {
  for (const char* id : {"a", "b"}) Join(id);
  Ranked();
  const std::vector<RoundMember> members = PlaceNodes(choice_.ranked);
  ASSERT_EQ(members.size(), 2U);
  EXPECT_EQ(members[1].node_id, NodeId("b"));
  EXPECT_EQ(members[1].node_order, 2U);
  EXPECT_EQ(members[1].placement.base_rank, 2U);
  EXPECT_DEATH(PlaceNodes({}), "without nodes");
}

}  // namespace
}  // namespace ddprun::rendezvous
