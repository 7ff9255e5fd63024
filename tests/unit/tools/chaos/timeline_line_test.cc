#include <gtest/gtest.h>

#include <string>

#include "tools/chaos/timeline_reader.h"

namespace ddprun::launcher {
namespace {

TEST(TimelineLine, HasItsFieldsAsTexts) {
  const std::string text =
      R"({"t":1.5,"wall":100.25,"pid":7,"who":"a","event":"spawn","generation":"2","x":1})";
  const auto line = ParseTimelineLine(text, LineClock::kMonotonic);
  ASSERT_TRUE(line.has_value());
  EXPECT_EQ(line->at, Instant::FromNanoseconds(1'500'000'000));
  EXPECT_EQ(line->who, "a");
  EXPECT_EQ(line->event, "spawn");
  EXPECT_EQ(line->Number("generation"), 2U);
  EXPECT_EQ(line->Field("pid"), "7");
  EXPECT_EQ(line->Field("x"), "1");
  EXPECT_EQ(line->Field("nothing"), "");
  EXPECT_EQ(line->Number("who"), std::nullopt);
  EXPECT_EQ(ParseTimelineLine(text, LineClock::kWall)->at,
            Instant::FromNanoseconds(100'250'000'000));
}

TEST(TimelineLine, AnythingElseIsNone) {
  for (const char* text : {"", "x", "[]", "{}", "7", R"({"t":1})", R"({"event":"a"})",
                           R"({"t":"1","event":"a"})", R"({"t":1e300,"event":"a"})",
                           R"({"t":-1e300,"event":"a"})", R"({"t":1,"event":"a")", "\xff\xfe"}) {
    EXPECT_FALSE(ParseTimelineLine(text, LineClock::kMonotonic).has_value()) << text;
  }
}

}  // namespace
}  // namespace ddprun::launcher
