#include "launcher/output/console.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>

#include "absl/strings/str_cat.h"
#include "tests/support/slow.h"
#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

class ConsoleTest : public ::testing::Test {
 protected:
  void SetUp() override {
    fcntl(pipe_.second.get(), F_SETPIPE_SZ, 4096);
    ASSERT_TRUE(SetNonBlocking(pipe_.first.get(), true).ok());
  }

  // What the reader of `fd` finds now.
  static std::string ReadNow(int fd) {
    std::string bytes(1 << 20, '\0');
    const ssize_t n = read(fd, bytes.data(), bytes.size());
    bytes.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return bytes;
  }

  // Reads while the loop runs, until the console is free.
  std::string ReadAllOf(Console* console, int fd) {
    std::string all;
    FdWatch reader(loop_.get(), fd, [&] {
      all += ReadNow(fd);
      if (!console->busy()) loop_->Stop();
    });
    if (console->busy()) loop_->Run();
    return all + ReadNow(fd);
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  FdPair pipe_ = *MakePipe();
};

std::string Lines(char letter, int count) {
  std::string lines;
  for (int i = 0; i < count; ++i) absl::StrAppend(&lines, std::string(79, letter), "\n");
  return lines;
}

TEST_F(ConsoleTest, WritesAtOnceWhatFits) {
  const auto console = Console::For(loop_.get(), pipe_.second.get());
  console->Write("one\ntwo\n");
  EXPECT_FALSE(console->busy());
  EXPECT_EQ(ReadNow(pipe_.first.get()), "one\ntwo\n");
}

TEST_F(ConsoleTest, IsOneForAPipe) {
  const auto console = Console::For(loop_.get(), pipe_.second.get());
  EXPECT_EQ(Console::For(loop_.get(), pipe_.second.get()), console);
  EXPECT_NE(Console::For(loop_.get(), MakePipe()->second.get()), console);
}

TEST_F(ConsoleTest, IsOneForEachDescriptorOfARegularFile) {
  const testing::TempTree tree;
  const std::string path = tree.Write("log", "");
  const Fd first(open(path.c_str(), O_WRONLY | O_CLOEXEC));
  const Fd second(open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  const auto console = Console::For(loop_.get(), first.get());
  EXPECT_EQ(Console::For(loop_.get(), first.get()), console);
  EXPECT_NE(Console::For(loop_.get(), second.get()), console);
}

// As stdout and stderr of a terminal or of "2>&1 | less", which have taken a part of a long line.
TEST_F(ConsoleTest, LinesStayWholeWhereTwoDescriptorsAreOneFile) {
  const Fd copy(fcntl(pipe_.second.get(), F_DUPFD_CLOEXEC, 0));
  const auto out = Console::For(loop_.get(), pipe_.second.get());
  const auto err = Console::For(loop_.get(), copy.get());
  const std::string line = std::string(9000, 'o') + "\n";
  out->Write(line);
  EXPECT_TRUE(out->busy());
  EXPECT_EQ(ReadNow(pipe_.first.get()), std::string(4096, 'o'));  // there is space again
  err->Write("an error\n");
  EXPECT_EQ(ReadAllOf(err.get(), pipe_.first.get()), line.substr(4096) + "an error\n");
}

TEST_F(ConsoleTest, NeverChangesTheSharedDescription) {
  {
    const auto console = Console::For(loop_.get(), pipe_.second.get());
    console->Write(Lines('a', 1000));
    EXPECT_TRUE(console->busy());
    EXPECT_EQ(fcntl(pipe_.second.get(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_EQ(ReadAllOf(console.get(), pipe_.first.get()), Lines('a', 1000));
  }
  EXPECT_EQ(fcntl(pipe_.second.get(), F_GETFL) & O_NONBLOCK, 0);
}

TEST_F(ConsoleTest, KeepsTheOrderAndCallsWhoWaitsInTurn) {
  const auto console = Console::For(loop_.get(), pipe_.second.get());
  const std::string first = Lines('1', 500);
  console->Write(first);
  ASSERT_TRUE(console->busy());
  int a = 0;
  int b = 0;
  int forgotten = 0;
  console->Await(&a, [&] { console->Write("a\n" + Lines('a', 500)); });
  console->Await(&forgotten, [&] { ADD_FAILURE() << "it was forgotten"; });
  console->Await(&b, [&] { console->Write("b\n"); });
  console->Forget(&forgotten);
  std::string all;
  FdWatch reader(loop_.get(), pipe_.first.get(), [&] {
    all += ReadNow(pipe_.first.get());
    if (all.ends_with("b\n")) loop_->Stop();
  });
  loop_->Run();
  EXPECT_EQ(all, first + "a\n" + Lines('a', 500) + "b\n");
}

TEST_F(ConsoleTest, WritesWholeLinesOfPipeSizeAtMost) {
  // A socket that keeps the borders of writes.
  const FdPair pair = *MakeMessagePair();
  ASSERT_TRUE(SetNonBlocking(pair.second.get(), true).ok());
  const auto console = Console::For(loop_.get(), pair.first.get());
  console->Write(Lines('a', 200));
  std::string piece;
  int pieces = 0;
  while (!(piece = ReadNow(pair.second.get())).empty()) {
    ++pieces;
    EXPECT_LE(piece.size(), 4096U);
    EXPECT_EQ(piece.size() % 80, 0U) << "a line was cut";
  }
  EXPECT_GE(pieces, 2);
}

TEST_F(ConsoleTest, DropsAllWhenTheReaderIsGone) {
  signal(SIGPIPE, SIG_IGN);
  const auto console = Console::For(loop_.get(), pipe_.second.get());
  pipe_.first.Reset();
  console->Write(Lines('a', 1000));
  EXPECT_FALSE(console->busy());
  console->Write("more\n");
  EXPECT_FALSE(console->busy());
  signal(SIGPIPE, SIG_DFL);
}

TEST_F(ConsoleTest, WritesToSocketsAndFiles) {
  int fds[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  const Fd ours(fds[0]);
  const Fd theirs(fds[1]);
  ASSERT_TRUE(SetNonBlocking(theirs.get(), true).ok());
  const auto console = Console::For(loop_.get(), ours.get());
  const std::string sent = Lines('s', 20'000);
  console->Write(sent);
  EXPECT_TRUE(console->busy());
  EXPECT_EQ(fcntl(ours.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_EQ(ReadAllOf(console.get(), theirs.get()), sent);

  const testing::TempTree tree;
  const Fd file(open(tree.Write("out", "before\n").c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
  Console::For(loop_.get(), file.get())->Write("after\n");
  EXPECT_EQ(tree.Read("out"), "before\nafter\n");
}

TEST_F(ConsoleTest, TheEndGivesTheRestTimeButNotForEver) {
  auto console = Console::For(loop_.get(), pipe_.second.get());
  console->Write(Lines('a', 1000));
  ASSERT_TRUE(console->busy());
  const Instant begin = loop_->Now();
  console.reset();  // nobody reads
  EXPECT_LT(loop_->Now() - begin, absl::Seconds(2) * Slow());
}

TEST_F(ConsoleTest, ABadDescriptorTakesNothing) {
  const auto console = Console::For(loop_.get(), 9999);
  console->Write("lost\n");
  EXPECT_FALSE(console->busy());
}

}  // namespace
}  // namespace ddprun::launcher
