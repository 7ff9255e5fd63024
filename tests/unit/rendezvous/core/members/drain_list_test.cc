#include "rendezvous/core/members/gate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

DrainedNode Drained(const std::string& id, const std::string& address = "10.0.0.1") {
  return {.node_id = NodeId(id), .hostname = "host", .address = address, .reason = "a new disk"};
}

TEST(DrainList, ADrainedMachineMayNotJoinUntilThatIsUndone) {
  DrainList drains;
  drains.Add(Drained("a"));
  const absl::Status status = drains.CheckMachine("host", "10.0.0.1");
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("node a was drained (a new disk)"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("ddprun drain --undo 'a'"));
  EXPECT_TRUE(drains.Undo(NodeId("a")));
  EXPECT_FALSE(drains.Undo(NodeId("a")));
  EXPECT_TRUE(drains.CheckMachine("host", "10.0.0.1").ok());
}

TEST(DrainList, AnAddressTellsApartMachinesOfOneName) {
  DrainList drains;
  drains.Add(Drained("a"));
  EXPECT_TRUE(drains.CheckMachine("host", "10.0.0.2").ok());
  EXPECT_TRUE(drains.CheckMachine("other", "10.0.0.1").ok());
}

TEST(DrainList, TheLastReasonIsFound) {
  DrainList drains;
  EXPECT_EQ(drains.Find(NodeId("a")), nullptr);
  drains.Add(Drained("a"));
  DrainedNode again = Drained("a", "10.0.0.2");
  again.reason = "a new fan";
  drains.Add(again);
  EXPECT_EQ(drains.Find(NodeId("a"))->reason, "a new fan");
  EXPECT_TRUE(drains.Undo(NodeId("a")));
  EXPECT_TRUE(drains.nodes().empty()) << "it is undone for all machines of that name";
}

TEST(DrainList, OnlyTheLastOnesAreRemembered) {
  DrainList drains;
  for (size_t i = 0; i <= kDrainedMax; ++i) drains.Add(Drained(absl::StrCat("n", i)));
  EXPECT_EQ(drains.nodes().size(), kDrainedMax);
  EXPECT_EQ(drains.Find(NodeId("n0")), nullptr);
  EXPECT_EQ(drains.BrokenInvariant(), "");
}

TEST(DrainListDeath, EachHasAName) { EXPECT_DEATH(DrainList().Add(Drained("")), "without a name"); }

}  // namespace
}  // namespace ddprun::rendezvous
