#include "rendezvous/core/members/roster.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace ddprun::rendezvous::roster_test {
namespace {

constexpr absl::Duration kLease = absl::Seconds(5);
constexpr Instant kNow = Instant::FromNanoseconds(1'000'000'000'000);

class RosterTest : public ::testing::Test {
 protected:
  ~RosterTest() override { EXPECT_EQ(roster_.BrokenInvariant(), ""); }

  const Node& Join(const std::string& id, std::optional<uint32_t> claim = std::nullopt) {
    NodeInfo info;
    info.hostname = "host" + id;
    info.node_rank = claim;
    const Node& node = roster_.Add(NodeId(id), Incarnation(++incarnations_), info);
    roster_.Attach(node, StreamKey(++streams_), StreamNumber(1), now_, kLease);
    return node;
  }
  std::optional<uint64_t> Leave(const Node& node) {
    if (node.stream) roster_.Close(roster_.Detach(node));
    return roster_.Remove(node, {.id = node.id});
  }

  Instant now_ = kNow;
  Roster roster_;
  uint64_t streams_ = 0;
  uint64_t incarnations_ = 0;
};

TEST_F(RosterTest, CountsWhoCouldStart) {
  const Node& a = Join("a");
  const Node& b = Join("b");
  EXPECT_EQ(roster_.candidates(), 2U);
  roster_.Change(a, [](Node& n) { n.BecomeMember(0); });
  EXPECT_EQ(roster_.candidates(), 1U) << "a member has its place";
  roster_.Change(a, [](Node& n) { n.BecomeWaiting(); });
  roster_.Change(b, [&](Node& n) { n.BeginCleaning(Generation(1), now_ + kLease); });
  EXPECT_EQ(roster_.candidates(), 1U) << "its old workers must end first";
  roster_.Change(b, [](Node& n) { n.EndStopping(); });
  EXPECT_EQ(roster_.candidates(), 2U);
  roster_.Change(b, [](Node& n) { n.Drain(); });
  EXPECT_EQ(roster_.candidates(), 1U) << "it is to leave";
  roster_.Detach(a);
  EXPECT_EQ(roster_.candidates(), 0U) << "without a stream";
}

TEST_F(RosterTest, TheHeirOfAClaimCanStart) {
  const Node& holder = Join("a", 3);
  const Node& rival = Join("b", 3);
  EXPECT_TRUE(holder.counted);
  EXPECT_FALSE(rival.counted);
  EXPECT_EQ(Leave(holder), rival.order);
  EXPECT_TRUE(rival.counted);
  EXPECT_EQ(Leave(rival), std::nullopt) << "nobody is left of that claim";
  EXPECT_EQ(Leave(Join("c")), std::nullopt) << "it claimed nothing";
}

TEST_F(RosterTest, NamesTheMissingRanksWhereAllClaimOne) {
  Join("a", 0);
  EXPECT_EQ(roster_.MissingText(3), "node ranks 1, 2");
  Join("b", 2);
  EXPECT_EQ(roster_.MissingText(3), "node rank 1");
  EXPECT_EQ(roster_.MissingText(2), "") << "enough are here";
  EXPECT_EQ(roster_.MissingText(11), "") << "more than anybody would read";
  Join("c");
  EXPECT_EQ(roster_.MissingText(4), "") << "one didn't say which it is";
}

TEST_F(RosterTest, TakesOutWhoIsOverdueInTheOrderOfTheirBounds) {
  const Node& a = Join("a");
  now_ = now_ + absl::Seconds(1);
  const Node& b = Join("b");
  EXPECT_EQ(roster_.deadline(), kNow + kLease);
  EXPECT_FALSE(roster_.TakeOverdue(now_).has_value());
  roster_.Change(b, [&](Node& n) { n.BeginStopping(kNow + absl::Seconds(2)); });
  roster_.Close(*a.stream);
  roster_.Change(a, [&](Node& n) { n.MissStream(now_, absl::Seconds(3)); });
  const Instant later = kNow + absl::Seconds(4);
  std::optional<Roster::Overdue> first = roster_.TakeOverdue(later);
  ASSERT_TRUE(first.has_value());
  EXPECT_EQ(first->node, &b);
  EXPECT_EQ(first->bound, Roster::Bound::kStop);
  Leave(b);
  std::optional<Roster::Overdue> second = roster_.TakeOverdue(later);
  ASSERT_TRUE(second.has_value());
  EXPECT_EQ(second->node, &a);
  EXPECT_EQ(second->bound, Roster::Bound::kGrace);
  Leave(a);
  EXPECT_TRUE(roster_.deadline().is_infinite());
  const Node& c = Join("c");
  EXPECT_EQ(roster_.TakeOverdue(c.lease_end)->bound, Roster::Bound::kLease);
  Leave(c);
}

TEST_F(RosterTest, AStreamThatWeEndIsAStrayUntilItIsClosed) {
  const Node& a = Join("a");
  const StreamKey stream = roster_.Detach(a);
  EXPECT_TRUE(roster_.table().IsStray(stream));
  EXPECT_EQ(roster_.Close(stream), nullptr);
  EXPECT_FALSE(roster_.table().IsStray(stream));
}

TEST_F(RosterTest, AfterTheEndNobodyCanStart) {
  Join("a");
  roster_.Retire();
  EXPECT_EQ(roster_.candidates(), 0U);
  const Node& late = roster_.Add(NodeId("b"), Incarnation(99), {});
  roster_.Attach(late, StreamKey(99), StreamNumber(1), now_, std::nullopt);
  EXPECT_EQ(roster_.candidates(), 0U);
  EXPECT_TRUE(roster_.deadline().is_infinite());
}

// Whatever is done to nodes, in whatever order: the counts and the deadlines follow.
TEST_F(RosterTest, TheCountsFollowAnyChanges) {
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    Rng rng(seed);
    Roster roster;
    uint64_t stream = 0;
    for (int step = 0; step < 300; ++step) {
      const NodeId id(absl::StrCat("n", rng.Below(8)));
      const Node* node = roster.table().FindById(id);
      if (node == nullptr) {
        NodeInfo info;
        if (rng.Chance(50)) info.node_rank = static_cast<uint32_t>(rng.Below(3));
        node = &roster.Add(id, Incarnation(static_cast<uint64_t>(step) + 1), info);
        roster.Attach(*node, StreamKey(++stream), StreamNumber(1), now_, kLease);
      } else if (rng.Chance(20)) {
        if (node->stream) roster.Close(roster.Detach(*node));
        roster.Remove(*node, {.id = id});
      } else if (rng.Chance(30)) {
        if (node->stream) {
          roster.Close(*node->stream);
          roster.Change(*node, [&](Node& n) { n.MissStream(now_, absl::Seconds(1)); });
        } else {
          roster.Attach(*node, StreamKey(++stream), node->stream_number.Next(), now_, kLease);
        }
      } else if (node->group_rank) {
        roster.Change(*node, [](Node& n) { n.BecomeWaiting(); });
      } else if (node->cleaning != Generation()) {
        roster.Change(*node, [](Node& n) { n.EndStopping(); });
      } else if (rng.Chance(50)) {
        roster.Change(*node, [](Node& n) { n.BecomeMember(0); });
      } else {
        roster.Change(*node, [&](Node& n) { n.BeginCleaning(Generation(1), now_); });
      }
      ASSERT_EQ(roster.BrokenInvariant(), "") << "seed " << seed << ", step " << step;
    }
  }
}

TEST_F(RosterTest, TheCheckSeesWhatIsBroken) {
  Join("a");
  Roster broken;
  const Node& node = broken.Add(NodeId("a"), Incarnation(1), {});
  EXPECT_EQ(broken.BrokenInvariant(), "a node without a lease");
  broken.Attach(node, StreamKey(1), StreamNumber(1), now_, kLease);
  EXPECT_EQ(broken.BrokenInvariant(), "");
  Node& door = const_cast<Node&>(node);  // past the one door
  door.lease_end = door.lease_end + kLease;
  EXPECT_EQ(broken.BrokenInvariant(), "a: a stale deadline");
  door.lease_end = door.lease_end - kLease;
  door.draining = true;
  EXPECT_EQ(broken.BrokenInvariant(), "a: miscounted");
  door.draining = false;
  door.counted = false;
  EXPECT_EQ(broken.BrokenInvariant(), "a: miscounted");
  door.counted = true;
  door.stream.reset();
  EXPECT_EQ(broken.BrokenInvariant(), "the number of open streams is wrong");
}

TEST(RosterDeath, OnlyItsOwnNodesChange) {
  Roster roster;
  Roster other;
  const Node& node = roster.Add(NodeId("a"), Incarnation(1), {});
  EXPECT_DEATH(other.Change(node, [](Node&) {}), "another roster");
  roster.Attach(node, StreamKey(1), StreamNumber(1), kNow, kLease);
  EXPECT_DEATH(roster.Attach(node, StreamKey(2), StreamNumber(2), kNow, kLease), "stream");
  EXPECT_DEATH(roster.Remove(node, {}), "counted");
  EXPECT_DEATH(roster.Add(NodeId("a"), Incarnation(2), {}), "fresh");
}

}  // namespace
}  // namespace ddprun::rendezvous::roster_test
