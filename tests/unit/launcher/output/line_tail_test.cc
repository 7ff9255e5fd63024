#include "launcher/output/log_pump.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

std::string TailOf(const std::string& text, size_t piece = 4096) {
  LineTail tail;
  for (size_t at = 0; at < text.size(); at += piece) tail.Add(text.substr(at, piece));
  return tail.Lines();
}

TEST(LineTailTest, KeepsFewLinesWhole) {
  EXPECT_EQ(TailOf(""), "");
  EXPECT_EQ(TailOf("one\ntwo\n"), "one\ntwo\n");
  EXPECT_EQ(TailOf("one\ntwo"), "one\ntwo\n");
  EXPECT_EQ(TailOf("\n\nx\n"), "\n\nx\n");
}

TEST(LineTailTest, KeepsTheLast20) {
  std::string text;
  std::string expected;
  for (int i = 0; i < 50; ++i) {
    absl::StrAppend(&text, "line ", i, "\n");
    if (i >= 30) absl::StrAppend(&expected, "line ", i, "\n");
  }
  EXPECT_EQ(TailOf(text), expected);
}

TEST(LineTailTest, KeepsTheLast4KiBInWholeLines) {
  std::string text;
  for (int i = 0; i < 12; ++i)
    absl::StrAppend(&text, std::string(999, static_cast<char>('a' + i)), "\n");
  // 4 of 1000 bytes fit; however the bytes came.
  const std::string expected = text.substr(8 * 1000);
  for (const size_t piece : {1U, 7U, 1000U, 4096U, 100'000U}) {
    EXPECT_EQ(TailOf(text, piece), expected) << piece;
  }
}

TEST(LineTailTest, ShowsTheEndOfOneLongLine) {
  EXPECT_EQ(TailOf(std::string(100'000, 'x')), absl::StrCat(std::string(4096, 'x'), "\n"));
}

TEST(LineTailTest, OfProgressFramesTheLastOneCounts) {
  EXPECT_EQ(TailOf("10%\r20%\r30%\r\nnext\r\n"), "30%\nnext\n");
  EXPECT_EQ(TailOf("\r\n"), "\n");
}

}  // namespace
}  // namespace ddprun::launcher
