#include "launcher/keeper/channel.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ddprun::launcher {
namespace {

class ChannelTest : public ::testing::Test {
 protected:
  std::string Receive() {
    auto message = ReceiveMessage(pair_.second.get());
    EXPECT_TRUE(message.ok()) << message.status();
    if (!message.ok() || !message->has_value()) return "<nothing>";
    fds_ = std::move((*message)->fds);
    return (*message)->bytes;
  }

  FdPair pair_ = *MakeMessagePair();
  SendQueue sends_{pair_.first.get()};
  std::vector<Fd> fds_;
};

TEST_F(ChannelTest, CarriesMessagesOfEverySize) {
  EXPECT_EQ(Receive(), "<nothing>");
  for (const size_t size : {0U, 1U, 32'766U, 32'767U, 32'768U, 300'000U, 8U << 20}) {
    const std::string sent(size, 'm');
    ASSERT_TRUE(sends_.Send(sent).ok()) << size;
    EXPECT_EQ(Receive(), sent) << size;
  }
  EXPECT_EQ(Receive(), "<nothing>");
}

TEST_F(ChannelTest, RefusesWhatIsTooLong) {
  EXPECT_TRUE(absl::IsResourceExhausted(sends_.Send(std::string((8 << 20) + 1, 'm'))));
  ASSERT_TRUE(sends_.Send("after").ok());
  EXPECT_EQ(Receive(), "after");
}

TEST_F(ChannelTest, CarriesDescriptorsInOrderWithShortAndLongMessages) {
  for (const size_t size : {10U, 100'000U}) {
    FdPair pipe = *MakePipe();
    struct stat read_end {};
    struct stat received {};
    ASSERT_EQ(fstat(pipe.first.get(), &read_end), 0);
    std::vector<Fd> fds;
    fds.push_back(std::move(pipe.first));
    fds.push_back(std::move(pipe.second));
    ASSERT_TRUE(sends_.Send(std::string(size, 'm'), std::move(fds)).ok());
    EXPECT_EQ(Receive().size(), size);
    ASSERT_EQ(fds_.size(), 2U);
    ASSERT_EQ(fstat(fds_[0].get(), &received), 0);
    EXPECT_EQ(received.st_ino, read_end.st_ino);
    EXPECT_EQ(fcntl(fds_[0].get(), F_GETFL) & O_ACCMODE, O_RDONLY);
    EXPECT_EQ(fcntl(fds_[1].get(), F_GETFL) & O_ACCMODE, O_WRONLY);
    EXPECT_EQ(fcntl(fds_[0].get(), F_GETFD), FD_CLOEXEC);
  }
}

TEST_F(ChannelTest, KeepsWhatAFullSocketDoesNotTakeAndRefusesWithoutBound) {
  int sent = 0;
  absl::Status status;
  while ((status = sends_.Send(std::to_string(sent))).ok()) ++sent;
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
  EXPECT_FALSE(sends_.empty());
  for (int i = 0; i < sent; ++i) {
    ASSERT_EQ(Receive(), std::to_string(i));
    ASSERT_TRUE(sends_.Flush().ok());
  }
  EXPECT_TRUE(sends_.empty());
}

TEST_F(ChannelTest, TellsThatThePeerIsGone) {
  pair_.first.Reset();
  EXPECT_TRUE(absl::IsOutOfRange(ReceiveMessage(pair_.second.get()).status()));

  FdPair other = *MakeMessagePair();
  other.second.Reset();
  SendQueue sends(other.first.get());
  const absl::Status status = sends.Send("x");
  EXPECT_FALSE(status.ok());
  EXPECT_FALSE(absl::IsResourceExhausted(status));
}

TEST_F(ChannelTest, LastWordsComeAlsoFromWhoHasLeftAMessageUnread) {
  ASSERT_TRUE(sends_.Send("last words").ok());
  SendQueue other(pair_.second.get());
  ASSERT_TRUE(other.Send("never read").ok());
  pair_.first.Reset();
  EXPECT_EQ(Receive(), "last words");
  EXPECT_TRUE(absl::IsOutOfRange(ReceiveMessage(pair_.second.get()).status()));
}

TEST_F(ChannelTest, DropsMalformedPacketsAndGoesOn) {
  for (const std::string& packet :
       {std::string("x"), std::string("f"), std::string(64 << 10, 'p')}) {
    ASSERT_TRUE(WriteAll(pair_.first.get(), packet).ok());
    EXPECT_TRUE(absl::IsInvalidArgument(ReceiveMessage(pair_.second.get()).status())) << packet[0];
  }
  ASSERT_TRUE(sends_.Send("good").ok());
  EXPECT_EQ(Receive(), "good");
}

}  // namespace
}  // namespace ddprun::launcher
