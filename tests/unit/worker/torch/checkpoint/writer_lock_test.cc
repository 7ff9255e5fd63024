#include "worker/torch/checkpoint/writer_lock.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/inotify.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>

#include "absl/strings/str_cat.h"

namespace ddprun::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class WriterLockTest : public ::testing::Test {
 protected:
  WriterLockTest() : directory_(absl::StrCat(::testing::TempDir(), "writer_lock.", getpid())) {
    std::filesystem::remove_all(directory_);
  }
  ~WriterLockTest() override { std::filesystem::remove_all(directory_); }

  std::string Path() const { return directory_ + "/.writer"; }
  bool Takes(const std::string& run_id, bool restarts = false) const {
    const auto lock = WriterLock::Take(directory_, {.run_id = run_id, .restarts = restarts});
    return lock.ok() && lock->is_held();
  }
  // A process that has the lock until it is killed.
  pid_t StartHolder(const std::string& run_id) const {
    int ready[2];
    EXPECT_EQ(pipe(ready), 0);
    const pid_t child = fork();
    if (child == 0) {
      const auto lock = WriterLock::Take(directory_, {.run_id = run_id});
      if (!lock.ok() || !lock->is_held() || write(ready[1], "x", 1) != 1) _exit(1);
      pause();
      _exit(0);
    }
    char byte = 0;
    EXPECT_EQ(read(ready[0], &byte, 1), 1);
    close(ready[0]);
    close(ready[1]);
    return child;
  }

  const std::string directory_;
};

TEST_F(WriterLockTest, HoldsWhileItLives) {
  {
    auto first = WriterLock::Take(directory_, {.run_id = "first"});
    ASSERT_TRUE(first.ok() && first->is_held());
    EXPECT_FALSE(Takes("second"));
    const WriterLock moved = *std::move(first);
    EXPECT_FALSE(Takes("second"));
  }
  EXPECT_FALSE(std::filesystem::exists(Path()));
  EXPECT_TRUE(Takes("second"));
}

TEST_F(WriterLockTest, NamesWhoHasIt) {
  const auto first = WriterLock::Take(directory_, {.run_id = "first"});
  const auto second = WriterLock::Take(directory_, {.run_id = "second"});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
  std::array<char, 256> host = {};
  ASSERT_EQ(gethostname(host.data(), host.size() - 1), 0);
  EXPECT_THAT(second.status().message(),
              AllOf(HasSubstr(absl::StrCat("'", directory_, "'")),
                    HasSubstr(absl::StrCat("run first, pid ", getpid(), " on host ", host.data(),
                                           ", since 2")),
                    HasSubstr("--output_dir")));
}

// Two jobs that nobody has named aren't one.
TEST_F(WriterLockTest, JobsWithoutANameAreDifferentOnes) {
  const auto first = WriterLock::Take(directory_, {.run_id = "none"});
  const auto second = WriterLock::Take(directory_, {.run_id = "none"});
  EXPECT_EQ(second.status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(WriterLockTest, EndsWithItsProcess) {
  const pid_t holder = StartHolder("first");
  EXPECT_FALSE(Takes("second"));
  kill(holder, SIGKILL);
  waitpid(holder, nullptr, 0);
  EXPECT_TRUE(std::filesystem::exists(Path()));
  EXPECT_TRUE(Takes("second"));
}

// A restart finds the process before in its last milliseconds; it was seen to be locked when its
// words are read.
TEST_F(WriterLockTest, TheSameJobWaitsForTheEndOfItsProcessBefore) {
  for (const char* run_id : {"job", "none"}) {
    const pid_t holder = StartHolder(run_id);
    const int watch = inotify_init1(IN_CLOEXEC);
    ASSERT_GE(inotify_add_watch(watch, Path().c_str(), IN_ACCESS), 0);
    auto taken = std::async(std::launch::async, [&] { return Takes(run_id, /*restarts=*/true); });
    std::array<char, 512> event;
    ASSERT_GT(read(watch, event.data(), event.size()), 0);
    close(watch);
    kill(holder, SIGKILL);
    EXPECT_TRUE(taken.get()) << run_id;
    waitpid(holder, nullptr, 0);
  }
}

// The lock names a process that can't be waited for: this one, or one of another host.
TEST_F(WriterLockTest, TheSameJobGoesOnWithoutTheLock) {
  const auto first = WriterLock::Take(directory_, {.run_id = "job"});
  for (const char* host : {"", "elsewhere"}) {
    if (*host != '\0') {
      std::ofstream(Path()) << R"({"run_id":"job","host":"elsewhere","pid":1,"since":"then"})";
    }
    const auto second = WriterLock::Take(directory_, {.run_id = "job", .restarts = true});
    ASSERT_TRUE(second.ok()) << second.status();
    EXPECT_FALSE(second->is_held());
  }
}

TEST_F(WriterLockTest, AFileIsNoDirectory) {
  std::ofstream(directory_) << "a file";
  const std::string inside = directory_ + "/checkpoints";
  EXPECT_THAT(WriterLock::Take(inside, {.run_id = "job"}).status().message(),
              AllOf(HasSubstr(absl::StrCat("'", inside, "' can't have checkpoints: ")),
                    HasSubstr(absl::StrCat("'", directory_, "': File exists")),
                    HasSubstr("give another --output_dir")));
}

TEST_F(WriterLockTest, WhereNoneCanBeMadeThereIsNone) {
  const auto lock = WriterLock::Take("/proc/none/checkpoints", {.run_id = "job"});
  ASSERT_TRUE(lock.ok()) << lock.status();
  EXPECT_FALSE(lock->is_held());
}

}  // namespace
}  // namespace ddprun::worker
