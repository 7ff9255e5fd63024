// Output of real workers through the log pump.
#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <iterator>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "launcher/output/log_pump.h"
#include "tests/process/process_testing.h"

namespace ddprun::testing {
namespace {

using launcher::LogStream;

class LogProcessTest : public ::testing::Test {
 protected:
  void TearDown() override { unlink(path_.c_str()); }

  LogStream::Made MakeStream(int console_fd, const std::string& prefix) {
    auto made =
        LogStream::Create(keeper_.loop.get(),
                          {.file_path = path_, .console_fd = console_fd, .prefix = prefix}, [this] {
                            ended_ = true;
                            keeper_.loop->Stop();
                          });
    EXPECT_TRUE(made.ok()) << made.status();
    return *std::move(made);
  }

  std::string FileText() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  }

  KeeperUnderTest keeper_;
  std::string path_ = absl::StrCat(::testing::TempDir(), "/log_process_test.", getpid());
  bool ended_ = false;
};

uint64_t Fnv1a(const std::string& text) {
  uint64_t hash = 14695981039346656037U;
  for (const char letter : text) {
    hash = (hash ^ static_cast<unsigned char>(letter)) * 1099511628211U;
  }
  return hash;
}

TEST_F(LogProcessTest, AFloodReachesTheFileWhole) {
  LogStream::Made out = MakeStream(-1, "");
  auto sum = *MakePipe();
  ASSERT_TRUE(keeper_
                  .Spawn({.generation = 1,
                          .argv = Misbehave({"flood", "16"}),
                          .stdout_fd = std::move(out.worker_end),
                          .stderr_fd = std::move(sum.second)})
                  .ok());
  while (!ended_) keeper_.loop->Run();
  const std::string text = FileText();
  EXPECT_EQ(PipeReader(std::move(sum.first)).Line(), absl::StrCat(text.size(), " ", Fnv1a(text)));
  EXPECT_GE(text.size(), 16U << 20);
}

TEST_F(LogProcessTest, PiecesOfLinesBecomeWholePrefixedLines) {
  auto console = *MakePipe();
  LogStream::Made out = MakeStream(console.second.get(), "[default0]:");
  ASSERT_TRUE(keeper_
                  .Spawn({.generation = 1,
                          .argv = Misbehave({"partial-lines"}),
                          .stdout_fd = std::move(out.worker_end)})
                  .ok());
  while (!ended_) keeper_.loop->Run();
  out.stream.reset();
  console.second.Reset();
  EXPECT_EQ(PipeReader(std::move(console.first)).Rest(),
            "[default0]:one line\n[default0]:10%\r20%\rdone\n[default0]:no newline\n");
  EXPECT_EQ(FileText(), "one line\n10%\r20%\rdone\nno newline");
}

// Without the sweep that follows a worker's end, its stray child would hold the pipe for ever.
TEST_F(LogProcessTest, AStrayChildThatHoldsThePipeEndsWithItsWorker) {
  LogStream::Made out = MakeStream(-1, "");
  ASSERT_TRUE(keeper_
                  .Spawn({.generation = 1,
                          .argv = Misbehave({"hold-pipe"}),
                          .stdout_fd = std::move(out.worker_end)})
                  .ok());
  while (!ended_) keeper_.loop->Run();
  EXPECT_EQ(out.stream->Tail(), "last words\n");
  EXPECT_EQ(FileText(), "last words\n");
}

}  // namespace
}  // namespace ddprun::testing
