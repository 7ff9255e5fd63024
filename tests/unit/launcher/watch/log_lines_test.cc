#include "launcher/watch/log_lines.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

const LogLines::Source kOut{.generation = 1, .rank = 3, .is_stderr = false};
const LogLines::Source kErr{.generation = 1, .rank = 3, .is_stderr = true};

TEST(LogLines, PiecesBecomeWholeLinesOfTheirSource) {
  LogLines lines;
  EXPECT_EQ(lines.Add(kOut, "one\ntw"), "[rank3]:one\n");
  EXPECT_EQ(lines.Add(kErr, "error\n"), "[rank3]:error\n");
  EXPECT_EQ(lines.Add(kOut, "o\n\nthree"), "[rank3]:two\n[rank3]:\n");
  EXPECT_EQ(lines.EndAll(/*is_stderr=*/true), "");
  EXPECT_EQ(lines.EndAll(/*is_stderr=*/false), "[rank3]:three\n");
  EXPECT_EQ(lines.End(kOut), "");
}

TEST(LogLines, ALineWithoutAnEndFillsNoMemory) {
  LogLines lines;
  const std::string flood(50'000, 'x');
  EXPECT_EQ(lines.Add(kOut, flood), "");
  EXPECT_EQ(lines.Add(kOut, flood).size(), 100'000 + std::string("[rank3]:\n").size());
}

}  // namespace
}  // namespace ddprun::launcher
