// What is learned of workers' imports: its lines, and what two workers have in common.
#include "launcher/warm/core/learned.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

constexpr char kText[] =
    "signature 3.11 /usr/bin/python3\n"
    "module torch\n"
    "set HF_HOME=/data/a b=c\n"
    "seen torch.ops\n"
    "module torch.nn\n"
    "varies CACHE\n"
    "refused torch.nn reads RANK when it is imported\n"
    "imports 1900\n"
    "unfit one that was forked crashed soon\n";

Learned Parsed(const std::string& text) {
  absl::StatusOr<Learned> learned = ParseLearned(text);
  EXPECT_TRUE(learned.ok()) << learned.status();
  return learned.ok() ? *std::move(learned) : Learned();
}

TEST(Learned, IsReadAgainAsItWasWritten) {
  const Learned learned = Parsed(kText);
  EXPECT_EQ(LearnedText(learned), kText);
  EXPECT_EQ(learned.module_count(), 1U);  // one is refused
  EXPECT_TRUE(learned.IsRefused("torch.nn"));
  EXPECT_EQ(learned.refused[0].why, "reads RANK when it is imported");
}

TEST(Learned, BadLinesAreNamed) {
  const std::pair<const char*, const char*> kCases[] = {
      {"module torch\nmodule \n", "line 2 is no name of a module"},
      {"module a b\n", "line 1 is no name of a module"},
      {"seen \x01\n", "line 1 is no name of a module"},
      {"set HOME\n", "line 1 sets no variable"},
      {"set =x\n", "line 1 sets no variable"},
      {"varies a b\n", "line 1 is no name of a variable"},
      {"refused\n", "line 1 refuses no module"},
      {"took torch long\n", "line 1 is no time of an import"},
      {"imports soon\n", "line 1 is no time of all imports"},
      {"took\n", "line 1 is no time of an import"},
      {"import torch\n", "line 1 is of no known kind"},
  };
  for (const auto& [text, error] : kCases) {
    EXPECT_EQ(ParseLearned(text).status().message(), error) << text;
  }
}

TEST(Learned, HasBounds) {
  EXPECT_FALSE(ParseLearned(std::string(kLearnedBytesMax + 1, '\n')).ok());
  std::string lines;
  for (size_t i = 0; i <= kLearnedStepsMax; ++i) lines += "seen a\n";
  EXPECT_FALSE(ParseLearned(lines).ok());
  EXPECT_FALSE(ParseLearned(absl::StrCat("module ", std::string(513, 'a'))).ok());
}

TEST(Learned, WhatWorkersSetDifferentlyVaries) {
  const Learned both = MergeLearned(Parsed("set A=1\nset B=0\nmodule torch\n"),
                                    Parsed("set A=1\nset B=1\nmodule torch\n"));
  EXPECT_EQ(LearnedText(both), "signature \nset A=1\nmodule torch\nvaries B\n");
}

TEST(Learned, ImportsThatStandOutAreKeptOnce) {
  Learned learned = Parsed("took torch 9100\ntook numpy 700\ntook torch 2000\n");
  EXPECT_EQ(LearnedText(learned), "signature \ntook torch 2000\ntook numpy 700\n");
  EXPECT_EQ(ParkedText(learned, {}, {}), "");
}

TEST(Learned, AParkedProcessLeavesOutWhatIsRefused) {
  EXPECT_EQ(ParkedText(Parsed(kText), {"numpy", "torch.nn"}, {"RANK"}),
            "signature 3.11 /usr/bin/python3\n"
            "varies RANK\n"
            "varies CACHE\n"
            "module torch\n"
            "set HF_HOME=/data/a b=c\n"
            "seen torch.ops\n"
            "seen torch.nn\n"
            "preload numpy\n");
}

TEST(Learned, WhatIsInARefusedPackageIsRefused) {
  const Learned learned = Parsed(
      "module light\n"
      "module light.fabric\n"
      "module lighthouse\n"
      "module light.fabric.rank\n"
      "refused light reads RANK when it is imported\n");
  EXPECT_EQ(learned.module_count(), 1U);
  EXPECT_EQ(ParkedText(learned, {"light.more"}, {}),
            "seen light\n"
            "seen light.fabric\n"
            "module lighthouse\n"
            "seen light.fabric.rank\n");
}

}  // namespace
}  // namespace ddprun::launcher
