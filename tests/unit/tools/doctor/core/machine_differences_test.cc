#include "tools/doctor/core/machine_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

MachineSummary Node(const std::string& host, const std::string& torch, const std::string& kernel) {
  return {.host = host,
          .traits = {{.name = "kernel", .value = kernel},
                     {.name = "torch", .value = torch, .serious = true},
                     {.name = "system", .value = "Debian 12"}}};
}

TEST(CompareMachines, AlikeOnesDiffer) {
  EXPECT_THAT(CompareMachines({}), IsEmpty());
  EXPECT_THAT(CompareMachines({Node("a", "2.11", "6.1")}), IsEmpty());
  EXPECT_THAT(CompareMachines({Node("a", "2.11", "6.1"), Node("b", "2.11", "6.1")}), IsEmpty());
}

TEST(CompareMachines, SeriousOnesComeFirstAndMostHostsTooByValue) {
  const auto differences = CompareMachines(
      {Node("a", "2.10", "6.1"), Node("b", "2.11", "6.1"), Node("c", "2.11", "6.5")});
  ASSERT_EQ(differences.size(), 2U);
  EXPECT_EQ(differences[0].name, "torch");
  EXPECT_TRUE(differences[0].serious);
  ASSERT_EQ(differences[0].sides.size(), 2U);
  EXPECT_EQ(differences[0].sides[0].value, "2.11");
  EXPECT_THAT(differences[0].sides[0].hosts, ElementsAre("b", "c"));
  EXPECT_THAT(differences[0].sides[1].hosts, ElementsAre("a"));
  EXPECT_EQ(differences[1].name, "kernel");
  EXPECT_FALSE(differences[1].serious);
}

TEST(CompareMachines, WhatOneLacksIsUnknown) {
  MachineSummary old = Node("b", "2.11", "6.1");
  old.traits.pop_back();
  const auto differences = CompareMachines({Node("a", "2.11", "6.1"), old});
  ASSERT_EQ(differences.size(), 1U);
  EXPECT_EQ(differences[0].sides[1].value, "unknown");
}

TEST(ComparisonText, ShowsDifferencesThenWhatIsTheSame) {
  EXPECT_EQ(ComparisonText({Node("a", "2.11", "6.1"), Node("b", "2.10", "6.5")}),
            R"(2 nodes: a, b

differences that make runs fail, or wait for the slowest node
  torch
    2.11: a
    2.10: b

other differences
  kernel
    6.1: a
    6.5: b

the same on all
  system                 Debian 12
)");
  EXPECT_EQ(ComparisonText({}), "0 nodes: \n");
}

}  // namespace
}  // namespace ddprun::launcher
