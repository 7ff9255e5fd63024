// Runs of a job that is requeued, counted in its comment.
#include "launcher/schedulers/slurm_run.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

constexpr absl::Duration kShort = absl::Seconds(59);
constexpr absl::Duration kLong = absl::Seconds(60);

TEST(RequeueRecord, IsKeptBehindTheUsersComment) {
  const RequeueRecord none = ReadRequeueRecord("JobId=1 JobName=train\n   UserId=root(0)\n");
  EXPECT_EQ(none, RequeueRecord());
  EXPECT_EQ(ReadRequeueRecord("   AdminComment=x\n   Comment=two words \n   WorkDir=/\n").comment,
            "two words");
  for (const RequeueRecord& record :
       {RequeueRecord{.no_progress = 2}, RequeueRecord{.no_progress = 0, .step = 17},
        RequeueRecord{.no_progress = 3, .step = 0, .comment = "two words"}}) {
    const std::string text = CommentText(record);
    EXPECT_EQ(ReadRequeueRecord("   Comment=" + text + " \n   WorkDir=/\n"), record) << text;
  }
  EXPECT_EQ(CommentText({.no_progress = 2, .step = 17, .comment = "mine"}),
            "mine ddprun:no_progress=2,step=17");
  EXPECT_EQ(ReadRequeueRecord("Comment=ddprun:no_progress=x,step=-1"), RequeueRecord());
}

TEST(RequeueRecord, ProgressIsAStepBeyondTheHighest) {
  RequeueRecord record = CountRun({}, {.step = 10, .uptime = kShort});
  EXPECT_EQ(record, (RequeueRecord{.no_progress = 0, .step = 10}));
  record = CountRun(record, {.step = 10, .uptime = kLong});
  record = CountRun(record, {.step = 3, .uptime = kLong});
  record = CountRun(record, {.step = std::nullopt, .uptime = kLong});  // ended before the first
  EXPECT_EQ(record, (RequeueRecord{.no_progress = 3, .step = 10}));
  record = CountRun(record, {.step = 11, .uptime = kShort});
  EXPECT_EQ(record, (RequeueRecord{.no_progress = 0, .step = 11}));
}

TEST(RequeueRecord, WithoutMarksItIsAMinute) {
  RequeueRecord record = CountRun({}, {.step = std::nullopt, .uptime = kShort});
  record = CountRun(record, {.step = std::nullopt, .uptime = kShort});
  EXPECT_EQ(record.no_progress, 2);
  EXPECT_EQ(CountRun(record, {.step = std::nullopt, .uptime = kLong}).no_progress, 0);
}

}  // namespace
}  // namespace ddprun::launcher
