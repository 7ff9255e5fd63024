#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <csignal>
#include <string>
#include <thread>

namespace ddprun {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

TEST(FdTest, ClosesWhatItOwns) {
  FdPair pipe = *MakePipe();
  const int number = pipe.first.get();
  EXPECT_TRUE(IsOpen(number));
  pipe.first.Reset();
  EXPECT_FALSE(IsOpen(number));
  EXPECT_FALSE(pipe.first.valid());
}

TEST(FdTest, MovesOwnership) {
  FdPair pipe = *MakePipe();
  const int first = pipe.first.get();
  const int second = pipe.second.get();
  Fd taken = std::move(pipe.first);
  EXPECT_EQ(taken.get(), first);
  EXPECT_FALSE(pipe.first.valid());  // NOLINT(bugprone-use-after-move): the state that is promised
  taken = std::move(pipe.second);
  EXPECT_FALSE(IsOpen(first));
  EXPECT_EQ(taken.get(), second);
  Fd& same = taken;
  taken = std::move(same);
  EXPECT_TRUE(IsOpen(second));
  EXPECT_EQ(taken.Release(), second);
  EXPECT_TRUE(IsOpen(second));
  close(second);
}

TEST(FdTest, MakesDescriptorsThatExecCloses) {
  const FdPair pipe = *MakePipe();
  const FdPair messages = *MakeMessagePair();
  for (const Fd* fd : {&pipe.first, &pipe.second, &messages.first, &messages.second}) {
    EXPECT_EQ(fcntl(fd->get(), F_GETFD), FD_CLOEXEC);
  }
}

TEST(FdTest, MessagePairsKeepBordersAndTellTheEnd) {
  FdPair pair = *MakeMessagePair();
  ASSERT_TRUE(WriteAll(pair.first.get(), "one").ok());
  ASSERT_TRUE(WriteAll(pair.first.get(), "two").ok());
  pair.first.Reset();
  char buffer[16];
  EXPECT_EQ(read(pair.second.get(), buffer, sizeof(buffer)), 3);
  EXPECT_EQ(read(pair.second.get(), buffer, sizeof(buffer)), 3);
  EXPECT_EQ(read(pair.second.get(), buffer, sizeof(buffer)), 0);
}

TEST(FdTest, SetsAndClearsNonBlocking) {
  const FdPair pipe = *MakePipe();
  char byte = 0;
  ASSERT_TRUE(SetNonBlocking(pipe.first.get(), true).ok());
  EXPECT_EQ(read(pipe.first.get(), &byte, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  ASSERT_TRUE(SetNonBlocking(pipe.first.get(), false).ok());
  EXPECT_EQ(fcntl(pipe.first.get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_FALSE(SetNonBlocking(-1, true).ok());
}

TEST(FdTest, WritesMoreThanAPipeHolds) {
  FdPair pipe = *MakePipe();
  const std::string sent(1 << 20, 'x');
  std::string received;
  std::thread reader([&] {
    char buffer[8192];
    ssize_t n = 0;
    while ((n = read(pipe.first.get(), buffer, sizeof(buffer))) > 0) {
      received.append(buffer, static_cast<size_t>(n));
    }
  });
  EXPECT_TRUE(WriteAll(pipe.second.get(), sent).ok());
  pipe.second.Reset();
  reader.join();
  EXPECT_EQ(received, sent);
}

TEST(FdTest, TellsThatTheReaderIsGone) {
  signal(SIGPIPE, SIG_IGN);
  FdPair pipe = *MakePipe();
  pipe.first.Reset();
  EXPECT_EQ(WriteAll(pipe.second.get(), "x").message(), "write: Broken pipe (errno 32, EPIPE)");
  signal(SIGPIPE, SIG_DFL);
}

}  // namespace
}  // namespace ddprun
