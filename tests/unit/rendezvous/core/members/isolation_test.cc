#include "rendezvous/core/members/silence.h"

#include <gtest/gtest.h>

#include <vector>

#include "rendezvous/core/timing.h"

namespace ddprun::rendezvous::isolation_test {
namespace {

constexpr absl::Duration kLease = absl::Seconds(5);

Instant At(double seconds) { return Instant() + absl::Seconds(seconds); }

// A node that was heard last at `heard`, in seconds.
struct Said {
  double heard = 0;
  bool hosts_service = false;
};

bool NobodyIsHeardAt(double now, const std::vector<Said>& said) {
  NodeTable::Nodes nodes;
  for (size_t i = 0; i < said.size(); ++i) {
    Node& node = nodes[i + 1];
    node.heard = At(said[i].heard);
    node.info.hosts_service = said[i].hosts_service;
  }
  return HearsNobody(nodes, At(now), kLease);
}

TEST(HearsNobody, WhenAllAreSilentForHalfALease) {
  EXPECT_TRUE(NobodyIsHeardAt(5, {{0}, {2.4}}));
  EXPECT_FALSE(NobodyIsHeardAt(5, {{0}, {2.5}}));
  EXPECT_TRUE(NobodyIsHeardAt(5, {{0}}));
  EXPECT_FALSE(NobodyIsHeardAt(5, {})) << "without nodes there is nobody to hear";
}

TEST(HearsNobody, WhoHostsTheServiceProvesNothing) {
  EXPECT_TRUE(NobodyIsHeardAt(5, {{5, true}, {0}, {0}}));
  EXPECT_FALSE(NobodyIsHeardAt(5, {{5, true}, {0}, {4}}));
  EXPECT_FALSE(NobodyIsHeardAt(5, {{5, true}, {0}})) << "one alone may as well have died";
  EXPECT_TRUE(NobodyIsHeardAt(5, {{0, true}, {0}}));
}

TEST(Isolation, HoldsUntilItIsClosedOrHasLastedTooLong) {
  Isolation isolation;
  EXPECT_FALSE(isolation.Holds(At(1), false));
  EXPECT_FALSE(isolation.open());
  EXPECT_TRUE(isolation.Holds(At(5), true));
  EXPECT_EQ(isolation.since(), At(5));
  EXPECT_TRUE(isolation.Holds(At(6), true));
  EXPECT_EQ(isolation.since(), At(5));
  isolation.Close();
  EXPECT_FALSE(isolation.open());
  EXPECT_TRUE(isolation.Holds(At(100), true));
  EXPECT_TRUE(isolation.Holds(At(100) + kIsolationMax - absl::Nanoseconds(1), true));
  EXPECT_FALSE(isolation.Holds(At(100) + kIsolationMax, true));
}

}  // namespace
}  // namespace ddprun::rendezvous::isolation_test
