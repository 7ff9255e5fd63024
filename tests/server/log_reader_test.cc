#include "launcher/logs/log_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

namespace ddprun::launcher {
namespace {

using ::testing::HasSubstr;

class LogReaderTest : public ::testing::Test {
 protected:
  LogReaderTest() : folder_(mkdtemp(name_)) {}
  ~LogReaderTest() override { std::filesystem::remove_all(folder_); }

  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name, std::ios::app) << text;
  }
  LogFile File(const std::string& name, uint64_t generation, uint32_t rank = 0) const {
    return {.generation = generation, .rank = rank, .path = folder_ + "/" + name};
  }
  absl::Status Read(const LogRequest& request) {
    LogReader reader(catalog_, request);
    return reader.Run([this](const LogFile& /*file*/, std::string bytes) {
      const std::lock_guard lock(mutex_);
      text_ += bytes;
      changed_.notify_all();
      return true;
    });
  }
  void WaitFor(const std::string& text) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return text_ == text; });
  }

  char name_[32] = "/tmp/ddprun-logs-XXXXXX";
  const std::string folder_;
  const std::shared_ptr<LogCatalog> catalog_ = std::make_shared<LogCatalog>();
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string text_;
};

TEST_F(LogReaderTest, ReadsOneGenerationAfterTheOther) {
  Write("a", std::string(100'000, 'a'));
  Write("b", "b");
  catalog_->Add({File("a", 1)});
  catalog_->Add({File("b", 2)});
  ASSERT_TRUE(Read({}).ok());
  EXPECT_EQ(text_, std::string(100'000, 'a') + "b");
}

TEST_F(LogReaderTest, OneRank) {
  Write("a", "a");
  Write("b", "b");
  catalog_->Add({File("a", 1, 0), File("b", 1, 1)});
  ASSERT_TRUE(Read({.rank = 1}).ok());
  EXPECT_EQ(text_, "b");
}

TEST_F(LogReaderTest, SinceBeginsWithTheLineThatWasWrittenThen) {
  Write("a", "old\nhalf");
  Write("b", "old, too\n");
  const LogFile a = File("a", 1);
  const LogFile b = File("b", 2);
  a.history->Note(Instant() + absl::Seconds(1), 8);
  b.history->Note(Instant() + absl::Seconds(1), 9);
  Write("a", " a line\nnew\n");
  a.history->Note(Instant() + absl::Seconds(9), 20);
  catalog_->Add({a});
  catalog_->Add({b});
  ASSERT_TRUE(Read({.since = Instant() + absl::Seconds(5)}).ok());
  EXPECT_EQ(text_, "half a line\nnew\n");
  text_.clear();
  ASSERT_TRUE(Read({.since = Instant()}).ok());
  EXPECT_EQ(text_, "old\nhalf a line\nnew\nold, too\n");
  text_.clear();
  ASSERT_TRUE(Read({.tail_lines = 9, .since = Instant() + absl::Seconds(5)}).ok());
  EXPECT_EQ(text_, "");
}

// A worker that goes on in another generation writes to the file that it has.
TEST_F(LogReaderTest, AFileOfTwoGenerationsIsReadOnce) {
  Write("kept", "1");
  Write("b", "2");
  Write("c", "3");
  catalog_->Add({File("kept", 1, 0), File("b", 1, 1)});
  catalog_->Add({File("kept", 2, 1), File("c", 2, 0)});
  catalog_->Add({File("kept", 3, 1)});
  ASSERT_TRUE(Read({}).ok());
  EXPECT_EQ(text_, "123");
  text_.clear();
  ASSERT_TRUE(Read({.tail_lines = 5}).ok());
  EXPECT_EQ(text_, "1");
}

TEST_F(LogReaderTest, TheLastLinesOfTheNewestGeneration) {
  Write("old", "old\n");
  Write("a", "1\n2\n" + std::string(50'000, '3') + "\n4\n");
  Write("b", "5\n6\n7");
  catalog_->Add({File("old", 1)});
  catalog_->Add({File("a", 2), File("b", 2)});
  ASSERT_TRUE(Read({.tail_lines = 2}).ok());
  EXPECT_THAT(text_, HasSubstr("6\n7"));
  EXPECT_THAT(text_, HasSubstr("33\n4\n"));
  EXPECT_EQ(text_.size(), 50'003 + 3U);
  text_.clear();
  ASSERT_TRUE(Read({.tail_lines = 100}).ok());
  EXPECT_EQ(text_.size(), 50'007 + 5U);
  text_.clear();
  ASSERT_TRUE(Read({.tail_lines = 0}).ok());
  EXPECT_EQ(text_, "");
}

TEST_F(LogReaderTest, FollowsWhatIsWrittenAndTheNextGeneration) {
  Write("a", "1");
  catalog_->Add({File("a", 1)});
  absl::Status status;
  std::thread thread([&] { status = Read({.follow = true}); });
  WaitFor("1");
  Write("a", "2");
  WaitFor("12");
  Write("b", "3");
  catalog_->Add({File("b", 2)});
  WaitFor("123");
  Write("a", "4");  // late
  WaitFor("1234");
  Write("b", "5");
  catalog_->Close();
  thread.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(text_, "12345");
}

TEST_F(LogReaderTest, IsStoppedWhileItWaits) {
  Write("a", "1");
  catalog_->Add({File("a", 1)});
  LogReader reader(catalog_, {.follow = true});
  absl::Status status;
  std::thread thread([&] {
    status = reader.Run([this](const LogFile& /*file*/, const std::string& bytes) {
      const std::lock_guard lock(mutex_);
      text_ += bytes;
      changed_.notify_all();
      return true;
    });
  });
  WaitFor("1");
  reader.Stop();
  thread.join();
  EXPECT_TRUE(absl::IsCancelled(status));
}

TEST_F(LogReaderTest, NamesAFileThatIsGone) {
  catalog_->Add({File("nothing", 1)});
  EXPECT_THAT(std::string(Read({}).message()), HasSubstr("nothing"));
}

TEST(LogCatalog, RemembersTheNewest) {
  LogCatalog catalog;
  catalog.Add(std::vector<LogFile>(LogCatalog::kFilesMax, LogFile()));
  uint64_t seen = 0;
  EXPECT_EQ(catalog.TakeNew(&seen).size(), LogCatalog::kFilesMax);
  catalog.Add({LogFile(), LogFile()});
  EXPECT_EQ(catalog.TakeNew(&seen).size(), 2U);
  EXPECT_EQ(catalog.TakeNew(&seen).size(), 0U);
  seen = 0;
  EXPECT_EQ(catalog.TakeNew(&seen).size(), LogCatalog::kFilesMax);
}

}  // namespace
}  // namespace ddprun::launcher
