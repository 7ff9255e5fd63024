#include "tools/watch/log_lines.h"

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

TEST(LogLines, WideAndJson) {
  const LogLines::Source source = {.generation = 2,
                                   .rank = 3,
                                   .is_stderr = true,
                                   .node = "host1/1",
                                   .local_rank = 1,
                                   .restart_count = 4};
  LogLines wide(OutputForm::kWide);
  EXPECT_EQ(wide.Add(source, "a\n"), "[host1/1 rank3 generation2 stderr]:a\n");
  LogLines json(OutputForm::kJson);
  EXPECT_EQ(json.Add(source, "a\"\xff\nb"),
            "{\"node\":\"host1/1\",\"rank\":3,\"local_rank\":1,\"generation\":2,"
            "\"restart_count\":4,\"stream\":\"stderr\",\"line\":\"a\\\"\xEF\xBF\xBD\"}\n");
}

}  // namespace
}  // namespace ddprun::launcher
