// What is worked out before a child is forked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "launcher/keeper/exec_child.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;

TEST(ComposeEnvironmentTest, OverridesInPlaceAndRemoves) {
  EXPECT_THAT(ComposeEnvironment({"A=1", "B=2", "C=3"}, {"B=two", "D=4"}, {"C"}),
              ElementsAre("A=1", "B=two", "D=4"));
}

TEST(ComposeEnvironmentTest, WhatIsSetIsNotUnset) {
  EXPECT_THAT(ComposeEnvironment({"A=1"}, {"A=2"}, {"A"}), ElementsAre("A=2"));
}

TEST(ComposeEnvironmentTest, PassesBytesOnAsTheyAre) {
  EXPECT_THAT(ComposeEnvironment({"ODD", "E=", "X=a=b\n\xff"}, {"A="}, {"B"}),
              ElementsAre("ODD", "E=", "X=a=b\n\xff", "A="));
}

TEST(ComposeEnvironmentTest, TheLastOfAVariableWins) {
  EXPECT_THAT(ComposeEnvironment({"A=1", "A=2"}, {"A=3", "A=4"}, {}), ElementsAre("A=4"));
}

TEST(ComposeEnvironmentTest, ANameIsNotItsPrefix) {
  EXPECT_THAT(ComposeEnvironment({"RANK=1", "RANKS=2"}, {"RANK=3"}, {"RAN"}),
              ElementsAre("RANK=3", "RANKS=2"));
}

TEST(ExecCandidatesTest, APathIsTakenAsItIs) {
  EXPECT_THAT(ExecCandidates("./x", {"PATH=/a"}), ElementsAre("./x"));
  EXPECT_THAT(ExecCandidates("/x", {"PATH=/a"}), ElementsAre("/x"));
  EXPECT_THAT(ExecCandidates("", {"PATH=/a"}), ElementsAre(""));
}

TEST(ExecCandidatesTest, ANameIsLookedUpInThePathOfTheEnvironment) {
  EXPECT_THAT(ExecCandidates("x", {"A=1", "PATH=/a:/b/"}), ElementsAre("/a/x", "/b//x"));
  // An empty entry is the current directory.
  EXPECT_THAT(ExecCandidates("x", {"PATH=:/a"}), ElementsAre("x", "/a/x"));
  EXPECT_THAT(ExecCandidates("x", {"PATHS=/a"}), ElementsAre("/bin/x", "/usr/bin/x"));
}

}  // namespace
}  // namespace ddprun::launcher
