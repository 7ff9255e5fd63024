#include "worker/metrics/json_lines.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <string>

#include "tests/unit/worker/metrics/temporary_directory.h"

namespace ddprun::worker {
namespace {

using ::testing::HasSubstr;

constexpr uint64_t kGeneration = 3;

MetricsRecord RecordAt(int64_t step) {
  return {.step = step, .time = absl::FromUnixSeconds(50), .values = {{"loss", 0.5}}};
}

// The line of RecordAt.
std::string LineAt(int64_t step) { return JsonLine(RecordAt(step), kGeneration); }

class JsonLinesTest : public WithDirectory {
 protected:
  // Writes these steps as a program does that goes on at `resumed_step`.
  void Run(int64_t resumed_step, std::initializer_list<int64_t> steps) const {
    absl::StatusOr<JsonLines> lines = JsonLines::Open(Path(), resumed_step, kGeneration);
    ASSERT_TRUE(lines.ok()) << lines.status();
    for (const int64_t step : steps) ASSERT_TRUE(lines->Append(RecordAt(step)).ok());
  }
  void Add(const std::string& text) const { std::ofstream(Path(), std::ios::app) << text; }
  std::string Path() const { return File("metrics.jsonl"); }
};

TEST(JsonLineTest, IsOneObject) {
  EXPECT_EQ(JsonLine({.step = 10,
                      .time = absl::FromUnixMillis(1'763'800'000'500),
                      .values = {{"loss", 0.1}, {"evaluation/accuracy", 1}}},
                     2),
            "{\"step\":10,\"time\":1763800000.5,\"generation\":2,\"loss\":0.1,"
            "\"evaluation/accuracy\":1.0}\n");
}

TEST(JsonLineTest, StaysJsonWithoutANumber) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_THAT(JsonLine({.values = {{"loss", nan}, {"\xff", 1}}}, 0), HasSubstr("\"loss\":null"));
}

TEST_F(JsonLinesTest, EachRecordIsInTheFileAtOnce) {
  absl::StatusOr<JsonLines> lines = JsonLines::Open(Path(), 0, kGeneration);
  ASSERT_TRUE(lines.ok());
  ASSERT_TRUE(lines->Append(RecordAt(1)).ok());
  EXPECT_EQ(Read(Path()), LineAt(1));
}

TEST_F(JsonLinesTest, StepsThatAreDoneOnceMoreAreTakenOut) {
  Run(0, {10, 20, 30});
  Run(20, {30, 40});
  EXPECT_EQ(Read(Path()), LineAt(10) + LineAt(20) + LineAt(30) + LineAt(40));
}

TEST_F(JsonLinesTest, HalfALineAtTheEndIsTakenOut) {
  Run(0, {10, 20});
  Add(LineAt(30).substr(0, 17));
  Run(100, {110});
  EXPECT_EQ(Read(Path()), LineAt(10) + LineAt(20) + LineAt(110));
}

TEST_F(JsonLinesTest, ALineAboveAllThatWasDoneStaysWhereItIs) {
  Run(0, {10, 20});
  Run(20, {});
  EXPECT_EQ(Read(Path()), LineAt(10) + LineAt(20));
}

TEST_F(JsonLinesTest, AnotherRunsFileIsKeptUnderAnotherName) {
  Run(0, {10});
  Run(0, {20});
  Run(0, {30});
  EXPECT_EQ(Read(Path()), LineAt(30));
  EXPECT_EQ(Read(File("metrics.1.jsonl")), LineAt(10));
  EXPECT_EQ(Read(File("metrics.2.jsonl")), LineAt(20));
}

TEST_F(JsonLinesTest, ADirectoryThatIsMissingIsNamed) {
  const auto lines = JsonLines::Open(File("nowhere/metrics.jsonl"), 0, kGeneration);
  EXPECT_THAT(lines.status().message(), HasSubstr("nowhere/metrics.jsonl"));
}

TEST(AppendFileTest, AFullDiskIsNamed) {
  absl::StatusOr<AppendFile> file = AppendFile::Open("/dev/full");
  ASSERT_TRUE(file.ok());
  const absl::Status written = file->Append("x");
  EXPECT_THAT(written.message(), HasSubstr("'/dev/full'"));
  EXPECT_THAT(written.message(), HasSubstr("ENOSPC"));
}

}  // namespace
}  // namespace ddprun::worker
