#include "launcher/stores/peer_store.h"

#include <gmock/gmock.h>
#include <google/protobuf/text_format.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <variant>

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;

agent::v1::StoreRequest Parse(const std::string& text) {
  agent::v1::StoreRequest request;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &request)) << text;
  return request;
}

template <typename Operation>
Operation Convert(const std::string& text) {
  const absl::StatusOr<StoreOperation> operation = FromProto(Parse(text));
  if (!operation.ok() || !std::holds_alternative<Operation>(*operation)) {
    ADD_FAILURE() << text << " is another operation";
    return {};
  }
  return std::get<Operation>(*operation);
}

TEST(StoreWireTest, EveryOperationWithAllItsFields) {
  const auto set = Convert<SetKey>("set {key: 'k' value: '\\000v'}");
  EXPECT_EQ(set.key, "k");
  EXPECT_EQ(set.value, std::string("\0v", 2));
  const auto get = Convert<GetKey>("get {key: 'k' timeout_ms: 4294967295}");
  EXPECT_EQ(get.key, "k");
  EXPECT_EQ(get.timeout, absl::Milliseconds(4294967295));
  const auto wait = Convert<WaitForKeys>("wait {keys: 'b' keys: 'a' keys: 'b' timeout_ms: 7}");
  EXPECT_THAT(wait.keys, ElementsAre("b", "a", "b"));
  EXPECT_EQ(wait.timeout, absl::Milliseconds(7));
  const auto add = Convert<AddToKey>("add {key: 'k' amount: -3}");
  EXPECT_EQ(add.key, "k");
  EXPECT_EQ(add.amount, -3);
  EXPECT_THAT(Convert<CheckKeys>("check {keys: 'b' keys: 'a'}").keys, ElementsAre("b", "a"));
  EXPECT_EQ(Convert<DeleteKey>("delete {key: 'k'}").key, "k");
  const auto compare =
      Convert<CompareAndSetKey>("compare_set {key: 'k' expected: 'old' desired: 'new'}");
  EXPECT_EQ(compare.key, "k");
  EXPECT_EQ(compare.expected, "old");
  EXPECT_EQ(compare.desired, "new");
  Convert<CountKeys>("count {}");
  const auto gather =
      Convert<GatherKeys>("gather {key: 'k' value: '\\000v' keys: 'b' keys: 'a' timeout_ms: 8}");
  EXPECT_EQ(gather.key, "k");
  EXPECT_EQ(gather.value, std::string("\0v", 2));
  EXPECT_THAT(gather.keys, ElementsAre("b", "a"));
  EXPECT_EQ(gather.timeout, absl::Milliseconds(8));
}

TEST(StoreWireTest, NoOperationIsRefused) {
  EXPECT_TRUE(absl::IsInvalidArgument(FromProto(Parse("generation: 1")).status()));
  EXPECT_EQ(OperationName(Parse("generation: 1")), "unknown");
}

TEST(StoreWireTest, NamesAndTimeouts) {
  EXPECT_EQ(OperationName(Parse("compare_set {}")), "compare_set");
  EXPECT_EQ(OperationName(Parse("delete {}")), "delete");
  EXPECT_EQ(TimeoutOf(Parse("get {timeout_ms: 5}")), absl::Milliseconds(5));
  EXPECT_EQ(TimeoutOf(Parse("wait {timeout_ms: 6}")), absl::Milliseconds(6));
  EXPECT_EQ(TimeoutOf(Parse("set {}")), absl::ZeroDuration());
}

TEST(StoreWireTest, Replies) {
  const auto value = std::make_shared<const std::string>("\0v", 2);
  const agent::v1::StoreReply reply = ToProto({.value = value, .number = -4, .found = true});
  EXPECT_EQ(reply.value(), *value);
  EXPECT_EQ(reply.number(), -4);
  EXPECT_TRUE(reply.found());
  EXPECT_EQ(ToProto({.values = {value, value}}).values(1), *value);
  EXPECT_EQ(ToProto({}).ByteSizeLong(), 0U);
}

}  // namespace
}  // namespace ddprun::launcher
