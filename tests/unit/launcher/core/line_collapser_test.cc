#include "launcher/core/line_collapser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/rng.h"

namespace ddprun::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::vector<std::string> Texts(const std::vector<LineCollapser::Line>& lines) {
  std::vector<std::string> texts;
  for (const LineCollapser::Line& line : lines) {
    texts.push_back(absl::StrCat("[", RankRanges(line.local_ranks), "]", line.text));
  }
  return texts;
}

class LineCollapserTest : public ::testing::Test {
 protected:
  LineCollapserTest() {
    for (uint32_t rank = 0; rank < 3; ++rank) collapser_.Begin(rank);
  }

  void Say(uint32_t rank, const std::string& text) { collapser_.Add(now_, rank, text); }
  std::vector<std::string> Shown() { return Texts(collapser_.Take(now_)); }

  Instant now_;
  LineCollapser collapser_{{.hold = absl::Milliseconds(200), .bytes_max = 100}};
};

TEST_F(LineCollapserTest, WhatAllSayIsShownAtOnce) {
  Say(1, "a");
  Say(0, "a");
  EXPECT_THAT(Shown(), IsEmpty());
  Say(2, "a");
  EXPECT_THAT(Shown(), ElementsAre("[0-2]a"));
  EXPECT_TRUE(collapser_.NextDeadline().is_infinite());
}

TEST_F(LineCollapserTest, WhatSomeSayWaitsItsTime) {
  Say(0, "a");
  Say(2, "a");
  EXPECT_EQ(collapser_.NextDeadline(), now_ + absl::Milliseconds(200));
  now_ = now_ + absl::Milliseconds(199);
  EXPECT_THAT(Shown(), IsEmpty());
  now_ = now_ + absl::Milliseconds(1);
  EXPECT_THAT(Shown(), ElementsAre("[0,2]a"));
  Say(1, "a");  // too late
  now_ = now_ + absl::Milliseconds(200);
  EXPECT_THAT(Shown(), ElementsAre("[1]a"));
}

TEST_F(LineCollapserTest, EachWorkersLinesStayInOrder) {
  Say(0, "a");
  Say(0, "b");
  Say(1, "b");
  Say(1, "a");  // not the first "a": that came before the "b"
  now_ = now_ + absl::Seconds(1);
  EXPECT_THAT(Shown(), ElementsAre("[0]a", "[0-1]b", "[1]a"));
}

TEST_F(LineCollapserTest, ARepeatedLineIsRepeated) {
  for (uint32_t rank = 0; rank < 3; ++rank) {
    Say(rank, "a");
    Say(rank, "a");
  }
  EXPECT_THAT(Shown(), ElementsAre("[0-2]a", "[0-2]a"));
}

TEST_F(LineCollapserTest, NobodyWaitsForAStreamThatEnded) {
  Say(0, "a");
  Say(1, "a");
  collapser_.End(2);
  EXPECT_THAT(Shown(), ElementsAre("[0-1]a"));
  Say(0, "left behind");
  collapser_.End(0);
  collapser_.End(1);
  EXPECT_THAT(Shown(), ElementsAre("[0]left behind"));
}

TEST_F(LineCollapserTest, AFloodOfOneWorkerIsBounded) {
  for (int i = 0; i < 30; ++i) Say(0, absl::StrCat("line ", i, " "));
  const size_t shown = Shown().size();
  EXPECT_GT(shown, 10U);
  EXPECT_LT(shown, 30U);
  EXPECT_EQ(collapser_.TakeAll().size(), 30 - shown);
}

// Whatever is said in which order: every worker's own lines come out as it said them.
TEST_F(LineCollapserTest, NothingIsLostOrReordered) {
  Rng rng(20);
  std::vector<std::vector<std::string>> said(3);
  std::vector<std::vector<std::string>> heard(3);
  const auto take = [&](const std::vector<LineCollapser::Line>& lines) {
    for (const LineCollapser::Line& line : lines) {
      for (const uint32_t rank : line.local_ranks) heard[rank].push_back(line.text);
    }
  };
  for (int i = 0; i < 20'000; ++i) {
    const auto rank = static_cast<uint32_t>(rng.Below(3));
    said[rank].push_back(absl::StrCat(rng.Below(4)));
    Say(rank, said[rank].back());
    if (rng.Below(3) == 0) now_ = now_ + absl::Milliseconds(rng.Below(100));
    if (rng.Below(2) == 0) take(collapser_.Take(now_));
  }
  take(collapser_.TakeAll());
  EXPECT_EQ(heard, said);
}

TEST(RankRanges, AreShort) {
  EXPECT_EQ(RankRanges({}), "");
  EXPECT_EQ(RankRanges({7}), "7");
  EXPECT_EQ(RankRanges({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

}  // namespace
}  // namespace ddprun::launcher
