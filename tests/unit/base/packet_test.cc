#include "base/packet.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace ddprun {
namespace {

class PacketTest : public ::testing::Test {
 protected:
  Packet Receive(size_t room = 16) {
    bytes_.assign(room, '\0');
    Packet packet = ReceivePacket(pair_.first.get(), &bytes_);
    if (packet.size >= 0) bytes_.resize(static_cast<size_t>(packet.size));
    return packet;
  }
  FdPair pair_ = *MakeMessagePair();
  std::string bytes_;
};

TEST_F(PacketTest, BringsBytesAndDescriptorsOneByOne) {
  FdPair pipe = *MakePipe();
  std::vector<Fd> ends;
  ends.push_back(std::move(pipe.second));
  ASSERT_EQ(SendPacket(pair_.second.get(), "one", ends), 0);
  ASSERT_EQ(SendPacket(pair_.second.get(), "two", {}), 0);
  ends.clear();
  Packet first = Receive();
  EXPECT_EQ(bytes_, "one");
  ASSERT_EQ(first.fds.size(), 1U);
  EXPECT_FALSE(first.cut);
  EXPECT_TRUE(fcntl(first.fds[0].get(), F_GETFD) & FD_CLOEXEC);
  ASSERT_TRUE(WriteAll(first.fds[0].get(), "x").ok());
  char byte = 0;
  EXPECT_EQ(read(pipe.first.get(), &byte, 1), 1);
  EXPECT_TRUE(Receive().fds.empty());
  EXPECT_EQ(bytes_, "two");
  EXPECT_EQ(Receive().size, -1);
  EXPECT_EQ(errno, EAGAIN);
  pair_.second.Reset();
  EXPECT_EQ(Receive().size, 0);
}

TEST_F(PacketTest, AFullSocketSaysSo) {
  int error = 0;
  for (int i = 0; i < 1'000'000 && error == 0; ++i) error = SendPacket(pair_.second.get(), "x", {});
  EXPECT_EQ(error, EAGAIN);
}

TEST_F(PacketTest, WhatHasNoRoomIsCut) {
  FdPair pipe = *MakePipe();
  std::vector<Fd> ends;
  ends.push_back(std::move(pipe.second));
  ASSERT_EQ(SendPacket(pair_.second.get(), "long", {}), 0);
  ASSERT_EQ(SendPacket(pair_.second.get(), "x", ends), 0);
  EXPECT_TRUE(Receive(2).cut);
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  const Packet lost = Receive();
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_FALSE(lost.cut);
  EXPECT_TRUE(lost.fds.empty());
}

}  // namespace
}  // namespace ddprun
