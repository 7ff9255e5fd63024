#include "worker/metrics/metrics_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>

#include "tests/unit/worker/metrics/temporary_directory.h"

namespace ddprun::worker {
namespace {

using ::testing::HasSubstr;

constexpr absl::Time kWritten = absl::FromUnixSeconds(1'763'800'000);

class MetricsLogTest : public WithDirectory {
 protected:
  MetricsLogOptions Options() const { return {.output_dir = File("run/one")}; }
};

TEST_F(MetricsLogTest, MakesItsDirectoryAndBothFiles) {
  absl::StatusOr<std::unique_ptr<MetricsLog>> log = MetricsLog::Open(Options(), kWritten);
  ASSERT_TRUE(log.ok()) << log.status();
  (*log)->Write({.step = 1, .time = kWritten, .values = {{"loss", 0.5}}});
  (*log)->Sync();
  EXPECT_THAT(Read(File("run/one/metrics.jsonl")), HasSubstr("\"step\":1,"));
  int event_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(File("run/one/tensorboard"))) {
    ++event_files;
    EXPECT_THAT(Read(entry.path()), HasSubstr("loss"));
  }
  EXPECT_EQ(event_files, 1);
}

TEST_F(MetricsLogTest, WritesOnlyWhatIsWanted) {
  MetricsLogOptions options = Options();
  options.tensorboard = false;
  ASSERT_TRUE(MetricsLog::Open(options, kWritten).ok());
  EXPECT_FALSE(std::filesystem::exists(File("run/one/tensorboard")));
  options.output_dir.clear();
  ASSERT_TRUE(MetricsLog::Open(options, kWritten).ok());
}

TEST_F(MetricsLogTest, ADirectoryThatCantBeMadeIsNamed) {
  std::ofstream(File("run")) << "a file";
  const auto log = MetricsLog::Open(Options(), kWritten);
  EXPECT_THAT(log.status().message(), HasSubstr("run/one"));
}

}  // namespace
}  // namespace ddprun::worker
