#include "worker/torch/zero/zero_state.h"

#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>

namespace ddprun::worker {
namespace {

using ::testing::HasSubstr;

using State = std::map<std::string, torch::Tensor>;

TEST(ZeroStateTest, NamesRoundTrip) {
  for (const char* text : {"0.step", "12.exp_avg", "3.exp_avg@0", "3.max_exp_avg_sq@4096"}) {
    const std::optional<ZeroStateName> name = ZeroStateName::Parse(text);
    ASSERT_TRUE(name.has_value()) << text;
    EXPECT_EQ(name->ToText(), text);
  }
  EXPECT_EQ(ZeroStateName::Parse("3.exp_avg@12")->begin, 12);
  EXPECT_EQ(ZeroStateName::Parse("3.exp_avg")->begin, -1);
}

TEST(ZeroStateTest, OtherNamesAreNone) {
  for (const char* text :
       {"group.0.learning_rate", "", "3", "x.step", "3.exp_avg@x", "3.exp_avg@-4", "3."}) {
    EXPECT_FALSE(ZeroStateName::Parse(text).has_value()) << text;
  }
}

// [0, 10) in parts of 4, 4 and 2; a field with a longer name between them in the order of names.
State Parts() {
  const torch::Tensor all = at::arange(10);
  return {{"1.exp_avg@0", all.slice(0, 0, 4)},
          {"1.exp_avg@4", all.slice(0, 4, 8)},
          {"1.exp_avg@8", all.slice(0, 8)},
          {"1.exp_avg_sq@0", all * 100},
          {"10.exp_avg@0", all * 7}};
}

TEST(ZeroStateTest, CutsOverTheBordersOfParts) {
  const ZeroStateName field = {.parameter = 1, .field = "exp_avg", .begin = 3};
  const absl::StatusOr<torch::Tensor> cut = CutOut(Parts(), field, 6);
  ASSERT_TRUE(cut.ok()) << cut.status();
  EXPECT_TRUE(cut->equal(at::arange(3, 9)));
}

TEST(ZeroStateTest, CutsOutOfAWholeTensorOfAnyShape) {
  const State state = {{"1.exp_avg", at::arange(10).view({2, 5})}};
  const ZeroStateName field = {.parameter = 1, .field = "exp_avg", .begin = 4};
  EXPECT_TRUE(CutOut(state, field, 3)->equal(at::arange(4, 7)));
}

TEST(ZeroStateTest, AGapIsNamed) {
  State state = Parts();
  state.erase("1.exp_avg@4");
  const ZeroStateName field = {.parameter = 1, .field = "exp_avg", .begin = 3};
  const absl::Status status = CutOut(state, field, 6).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("has 2 of the 6 elements of '1.exp_avg'"));
}

TEST(ZeroStateTest, JoinedPartsAreWholeTensors) {
  State state = Parts();
  state["1.step"] = at::arange(1);
  state["group.0.learning_rate"] = at::arange(1);
  state.erase("10.exp_avg@0");
  const absl::StatusOr<State> joined = JoinParts(state, {{3}, {5, 2}});
  ASSERT_TRUE(joined.ok()) << joined.status();
  EXPECT_EQ(joined->size(), 4U);
  EXPECT_TRUE(joined->at("1.exp_avg").equal(at::arange(10).view({5, 2})));
  EXPECT_TRUE(joined->at("1.exp_avg_sq").equal(100 * at::arange(10).view({5, 2})));
  EXPECT_FALSE(JoinParts(Parts(), {{3}, {5, 2}}).ok());  // there is no parameter 10
  EXPECT_FALSE(JoinParts(Parts(), {{3}, {5, 3}}).ok());  // it has 15 elements
}

}  // namespace
}  // namespace ddprun::worker
