#include "launcher/os/ended_jobs.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher::ended_jobs_test {
namespace {

using testing::TempTree;

constexpr uint64_t kTerm = 7;

EndedJob Failed(const std::string& run_id = "job7", int64_t ended_ms = 5000) {
  return {.run_id = run_id,
          .description = "train.py (2 nodes)",
          .outcome = "failed",
          .status = 1,
          .reason = "worker rank 3 on host1 was killed by SIGKILL",
          .rule = "restarts_spent",
          .generation = 4,
          .restart_count = 3,
          .max_restarts = 3,
          .node = "host0#4711",
          .host = "host0",
          .logs = "/logs/job7_1",
          .began_ms = 1000,
          .ended_ms = ended_ms};
}

// An agent that ended alone.
EndedJob Left(int64_t ended_ms) {
  EndedJob job = Failed("job7", ended_ms);
  job.outcome = "left";
  job.rule = "";
  return job;
}

class EndedJobs : public ::testing::Test {
 protected:
  std::string folder() const { return tree_.path() + "/state/ddprun/ended"; }
  void Record(const EndedJob& job, uint64_t term = kTerm) const {
    ASSERT_TRUE(RecordEndedJob(folder(), job, term).ok());
  }
  std::vector<EndedJob> Read() const { return ReadEndedJobs(folder()); }
  size_t Files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder()), {}));
  }

  TempTree tree_;
};

TEST_F(EndedJobs, AreReadAsTheyWereWritten) {
  Record(Failed());
  const std::vector<EndedJob> jobs = Read();
  ASSERT_EQ(1, jobs.size());
  EXPECT_EQ(FormatEndedJob(Failed()), FormatEndedJob(jobs[0]));
  EXPECT_EQ("worker rank 3 on host1 was killed by SIGKILL", jobs[0].reason);
  EXPECT_EQ(1, Files());  // no draft stays
}

TEST_F(EndedJobs, AreTheirUsersAlone) {
  const mode_t before = umask(0);
  Record(Failed("a/b\xff"));
  umask(before);
  struct stat facts {};
  ASSERT_EQ(0, stat(folder().c_str(), &facts));
  EXPECT_EQ(0700, facts.st_mode & 0777);
  const auto file = *std::filesystem::directory_iterator(folder());
  ASSERT_EQ(0, stat(file.path().c_str(), &facts));
  EXPECT_EQ(0600, facts.st_mode & 0777);
  EXPECT_EQ("a_b_-", file.path().filename().string().substr(0, 5));
}

TEST_F(EndedJobs, NewestFirst) {
  Record(Failed("middle", 2000), 1);
  Record(Failed("newest", 3000), 2);
  Record(Failed("oldest", 1500), 3);
  std::string names;
  for (const EndedJob& job : Read()) absl::StrAppend(&names, job.run_id, " ");
  EXPECT_EQ("newest middle oldest ", names);
}

TEST_F(EndedJobs, AJobOfSeveralAgentsHasOneRecord) {
  Record(Left(3000));
  EXPECT_EQ("left", Read().at(0).outcome);
  EndedJob late = Failed("job7", 5000);
  late.began_ms = 2000;
  Record(late);
  Record(Left(5001));
  ASSERT_EQ(1, Read().size());
  EXPECT_EQ("failed", Read()[0].outcome);
  EXPECT_EQ(1000, Read()[0].began_ms) << "since the first agent that wrote it down";
}

TEST_F(EndedJobs, JobsOfOneRunIdAreToldApart) {
  Record(Failed("job7", 5000), kTerm);
  Record(Failed("job7", 5000), kTerm + 1);  // of another service
  EndedJob next = Failed("job7", 9000);     // the next one of the same service
  next.began_ms = 5001;
  Record(next, kTerm);
  EXPECT_EQ(3, Read().size());
  Record(Failed("a/b"));
  Record(Failed("a_b"));
  EXPECT_EQ(5, Read().size());
}

TEST_F(EndedJobs, TheOldestGo) {
  const auto now = std::filesystem::file_time_type::clock::now();
  for (size_t i = 0; i < kEndedJobsMax; ++i) {
    const std::string path = tree_.Write(absl::StrCat("state/ddprun/ended/", i, ".json"),
                                         FormatEndedJob(Failed(absl::StrCat("old", i))));
    std::filesystem::last_write_time(path, now - std::chrono::hours(1 + i));
  }
  EXPECT_EQ(kEndedJobsMax, Read().size());
  Record(Failed("new", 9000));
  const std::vector<EndedJob> jobs = Read();
  EXPECT_EQ(kEndedJobsMax, jobs.size());
  EXPECT_EQ("new", jobs[0].run_id);
  EXPECT_TRUE(std::none_of(jobs.begin(), jobs.end(),
                           [](const EndedJob& job) { return job.run_id == "old99"; }));
  EXPECT_TRUE(std::any_of(jobs.begin(), jobs.end(),
                          [](const EndedJob& job) { return job.run_id == "old98"; }));
}

TEST_F(EndedJobs, WhatIsNoRecordIsLeftOut) {
  Record(Failed());
  const std::string good = FormatEndedJob(Failed());
  int files = 0;
  for (const std::string& bytes :
       {std::string(), std::string("{}"), std::string("[]"), std::string(1 << 17, ' ') + good,
        good.substr(0, good.size() / 2), std::string("\xff\xfe\0", 3),
        absl::StrCat("{\"run_id\": 7, ", good.substr(1))}) {
    tree_.Write(absl::StrCat("state/ddprun/ended/bad", ++files, ".json"), bytes);
  }
  tree_.Write("state/ddprun/ended/job.json.host0.17", good);  // a draft
  std::filesystem::create_directory(folder() + "/folder.json");
  ASSERT_EQ(0, mkfifo((folder() + "/fifo.json").c_str(), 0600));  // would never be read
  EXPECT_EQ(2, Read().size()) << "the record, and the one that names its run id twice";
}

TEST_F(EndedJobs, NumbersThatCantBeAreNoRecord) {
  EXPECT_TRUE(ParseEndedJob(FormatEndedJob(Failed())).has_value());
  EndedJob job = Failed();
  job.ended_ms = -1;
  EXPECT_FALSE(ParseEndedJob(FormatEndedJob(job)).has_value());
  job.ended_ms = INT64_MAX;
  EXPECT_FALSE(ParseEndedJob(FormatEndedJob(job)).has_value());
  job = Failed("");
  EXPECT_FALSE(ParseEndedJob(FormatEndedJob(job)).has_value());
}

// A home that isn't there is not made; one that takes no files is an error, which nobody is told.
TEST_F(EndedJobs, NeedAHome) {
  const std::string home = tree_.path() + "/nobody";
  EXPECT_FALSE(RecordEndedJob(home + "/.local/state/ddprun/ended", Failed(), kTerm).ok());
  EXPECT_FALSE(std::filesystem::exists(home));
  std::filesystem::create_directory(home);
  EXPECT_TRUE(RecordEndedJob(home + "/.local/state/ddprun/ended", Failed(), kTerm).ok());
  EXPECT_FALSE(RecordEndedJob("/dev/null/ddprun/ended", Failed(), kTerm).ok());
  EXPECT_TRUE(ReadEndedJobs("/dev/null/ddprun/ended").empty());
  EXPECT_TRUE(ReadEndedJobs("").empty());
}

TEST_F(EndedJobs, LongTextsAreCut) {
  EndedJob job = Failed();
  job.reason = std::string(100'000, 'x');
  Record(job);
  ASSERT_EQ(1, Read().size());
  EXPECT_EQ(2000, Read()[0].reason.size());
}

}  // namespace
}  // namespace ddprun::launcher::ended_jobs_test
