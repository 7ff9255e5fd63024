#include "rendezvous/core/views.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::rendezvous {
namespace {

using ::testing::HasSubstr;

NodeView NamedNode(const std::string& id, const std::string& host, std::optional<uint32_t> rank) {
  NodeView node;
  node.node_id = NodeId(id);
  node.info.hostname = host;
  node.group_rank = rank;
  return node;
}

JobView ThreeNodes() {
  JobView view;
  view.nodes = {NamedNode("host0/0", "host0", 0), NamedNode("host1#7", "host1", 1),
                NamedNode("host1#8", "host1", std::nullopt)};
  return view;
}

TEST(FindNode, ByIdHostNameAndGroupRank) {
  const JobView view = ThreeNodes();
  EXPECT_EQ((*FindNode(view, "host1#8"))->node_id.value(), "host1#8");
  EXPECT_EQ((*FindNode(view, "host0"))->node_id.value(), "host0/0");
  EXPECT_EQ((*FindNode(view, "1"))->node_id.value(), "host1#7");
}

TEST(FindNode, AnIdThatLooksLikeARankIsAnId) {
  JobView view = ThreeNodes();
  view.nodes.push_back(NamedNode("0", "host2", std::nullopt));
  EXPECT_EQ((*FindNode(view, "0"))->info.hostname, "host2");
}

TEST(FindNode, SaysWhichThereAre) {
  const absl::Status several = FindNode(ThreeNodes(), "host1").status();
  EXPECT_TRUE(absl::IsInvalidArgument(several));
  EXPECT_THAT(std::string(several.message()), HasSubstr("name one of them: host1#7, host1#8"));
  const absl::Status none = FindNode(ThreeNodes(), "7").status();
  EXPECT_TRUE(absl::IsNotFound(none));
  EXPECT_THAT(
      std::string(none.message()),
      HasSubstr("host0/0 (host0, group rank 0), host1#7 (host1, group rank 1), host1#8 (host1)"));
}

TEST(FindDrained, ByIdAndHostName) {
  JobView view;
  view.drained = {{.node_id = NodeId("host1#7"), .hostname = "host1", .address = "", .reason = ""}};
  EXPECT_TRUE(FindDrained(view, "host1#7").ok());
  EXPECT_TRUE(FindDrained(view, "host1").ok());
  EXPECT_THAT(std::string(FindDrained(view, "host2").status().message()),
              HasSubstr("those that were: host1#7 (host1)"));
}

}  // namespace
}  // namespace ddprun::rendezvous
