#include "worker/env/start_request.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_join.h"

namespace ddprun::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Writes a request as launcher/keeper/parked_process.cc does: each string ends in NUL.
std::string Text(const std::vector<std::string>& words) {
  return absl::StrJoin(words, std::string(1, '\0')) + std::string(1, '\0');
}

TEST(ParseStartRequestTest, TakesWhatTheKeeperSends) {
  const auto request = ParseStartRequest(Text({"12", "0,31", "oe", "RANK=1", "EMPTY="}));
  ASSERT_TRUE(request.has_value());
  EXPECT_EQ(request->keeper, 12);
  EXPECT_THAT(request->cpus, ElementsAre(0U, 31U));
  EXPECT_EQ(request->streams, "oe");
  EXPECT_THAT(request->environment, ElementsAre("RANK=1", "EMPTY="));
}

TEST(ParseStartRequestTest, MostOfItMayBeMissing) {
  const auto request = ParseStartRequest(Text({"12", "", "c"}));
  ASSERT_TRUE(request.has_value());
  EXPECT_THAT(request->cpus, IsEmpty());
  EXPECT_EQ(request->streams, "");
  EXPECT_THAT(request->environment, IsEmpty());
}

TEST(ParseStartRequestTest, RefusesWhatIsNone) {
  for (const std::string& text :
       {std::string(), std::string("12"), Text({"12", ""}), Text({"x", "", ""}),
        Text({"0", "", ""}), Text({"-3", "", ""}), Text({"12", "1,x", ""}), Text({"12", "-1", ""}),
        Text({"99999999999", "", ""})}) {
    EXPECT_FALSE(ParseStartRequest(text).has_value()) << text;
  }
}

TEST(WithChangesTest, WithoutAnyItIsAsItWas) {
  EXPECT_THAT(WithChanges({"A=1", "B=2"}, {"B=2", "A=1"}, {"RANK=0", "B=2", "A=1"}),
              ElementsAre("RANK=0", "B=2", "A=1"));
}

TEST(WithChangesTest, WhatLibrariesHaveSetTakenAwayOrChangedIsSo) {
  EXPECT_THAT(WithChanges({"KEPT=1", "GONE=1", "OTHER=1"}, {"KEPT=1", "OTHER=2", "NEW=1"},
                          {"KEPT=1", "GONE=1", "OTHER=1", "RANK=0"}),
              UnorderedElementsAre("KEPT=1", "OTHER=2", "NEW=1", "RANK=0"));
}

TEST(WithChangesTest, TheFirstOfOneNameCounts) {
  EXPECT_THAT(WithChanges({"A=1", "A=2"}, {"A=1"}, {"A=1"}), ElementsAre("A=1"));
}

}  // namespace
}  // namespace ddprun::worker
