#include "launcher/core/output_layout.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

constexpr OutputStream kOut = OutputStream::kStdout;
constexpr OutputStream kErr = OutputStream::kStderr;

TEST(OutputLayoutTest, ADevNullLogDirKeepsNothing) {
  EXPECT_TRUE(KeepsFiles({}));
  EXPECT_TRUE(KeepsFiles({.log_dir = "/logs"}));
  EXPECT_FALSE(KeepsFiles({.log_dir = "/dev/null"}));
}

TEST(OutputLayoutTest, StreamsGoWhereTheyWereSent) {
  OutputPlan output;
  output.stdout_sinks[1] = StreamSink::kTee;
  output.stderr_sinks[0] = StreamSink::kFile;
  EXPECT_EQ(SinkOf(output, kOut, 0), StreamSink::kInherit);
  EXPECT_EQ(SinkOf(output, kOut, 1), StreamSink::kTee);
  EXPECT_EQ(SinkOf(output, kErr, 0), StreamSink::kFile);
  EXPECT_EQ(SinkOf(output, kErr, 1), StreamSink::kInherit);
}

// Check 77 of tests/contract.
TEST(OutputLayoutTest, NothingOfAWorkerThatTheFilterLeavesOutReachesTheConsole) {
  OutputPlan output;
  output.local_ranks_filter = {1};
  output.stdout_sinks = {{2, StreamSink::kTee}, {3, StreamSink::kFile}, {4, StreamSink::kPrefixed}};
  EXPECT_EQ(SinkOf(output, kOut, 0), StreamSink::kDiscard);
  EXPECT_EQ(SinkOf(output, kOut, 1), StreamSink::kInherit);
  EXPECT_EQ(SinkOf(output, kOut, 2), StreamSink::kFile);
  EXPECT_EQ(SinkOf(output, kOut, 3), StreamSink::kFile);
  EXPECT_EQ(SinkOf(output, kOut, 4), StreamSink::kDiscard);
}

TEST(OutputLayoutTest, NamesFoldersAsTorchrunDoes) {
  EXPECT_EQ(RunFolderName("job", "a1b2c3d4"), "job_a1b2c3d4");
  EXPECT_EQ(RunFolderName("team/job", "a1b2c3d4"), "team_job_a1b2c3d4");
  EXPECT_EQ(AttemptFolderName(2), "attempt_2");
  EXPECT_EQ(AttemptFolderName(2, 7), "attempt_2.g7");
}

}  // namespace
}  // namespace ddprun::launcher
