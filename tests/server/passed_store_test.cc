#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/packet.h"
#include "launcher/stores/tcp_store_server.h"
#include "rendezvous/server/front_door.h"
#include "tests/support/loop_until.h"
#include "tests/support/tcp_store_bytes.h"

// The workers' store where the service has its port: its connections come from a ConnectionSender.
namespace ddprun::launcher {
namespace {

using namespace tcp_store_bytes;  // NOLINT(google-build-using-namespace): the words of the protocol

class PassedStoreTest : public ::testing::Test {
 protected:
  PassedStoreTest() {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(listen(listener_.get(), 4096), 0);
    EXPECT_EQ(getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address_), &length), 0);
  }
  void Start() {
    server_.reset();
    auto server =
        TcpStoreServer::Start(loop_.get(), Fd(fcntl(pair_.first.get(), F_DUPFD_CLOEXEC, 0)),
                              {.listener_passes_on = true});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  // A client whose connection the service has accepted and passed on.
  Fd Come(const std::string& says) {
    Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address_), sizeof(address_)),
              0);
    EXPECT_EQ(send(client.get(), says.data(), says.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(says.size()));
    sender_.Send(Fd(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)));
    return client;
  }
  // What the client gets; "" = its connection was closed.
  std::string Answer(const Fd& client, size_t size) {
    std::string bytes(size, '\0');
    ssize_t got = -1;
    EXPECT_TRUE(LoopUntil(loop_.get(), [&] {
      got = recv(client.get(), bytes.data(), size, MSG_DONTWAIT);
      loop_->Post([] {});
      return got >= 0 || errno != EAGAIN;
    }));
    bytes.resize(got < 0 ? 0 : static_cast<size_t>(got));
    return bytes;
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  Fd listener_{socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address_{};
  FdPair pair_ = *MakeMessagePair();
  rendezvous::ConnectionSender sender_{loop_.get(), pair_.second.get()};
  std::unique_ptr<TcpStoreServer> server_;
};

TEST_F(PassedStoreTest, IsServed) {
  Start();
  const Fd client = Come(Validate() + Ping(7));
  EXPECT_EQ(Answer(client, 4), Number(7, 4));
}

// More than the socket between the two holds; the clients of a generation may be early.
TEST_F(PassedStoreTest, ClientsWaitForTheStore) {
  std::vector<Fd> clients;
  for (uint32_t i = 0; i < 600; ++i) clients.push_back(Come(Validate() + Ping(i)));
  Start();
  for (uint32_t i = 0; i < clients.size(); ++i) EXPECT_EQ(Answer(clients[i], 4), Number(i, 4));
}

TEST_F(PassedStoreTest, TheNextStoreHasNeitherKeysNorConnectionsOfTheLast) {
  Start();
  const Fd old = Come(Validate() + Set("k", "old") + Ping(1));
  EXPECT_EQ(Answer(old, 4), Number(1, 4));
  server_.reset();
  EXPECT_EQ(Answer(old, 1), "");
  // Between two generations: those that give up have ended, one of them by a reset.
  Come(Validate() + Set("k", "abandoned"));
  {
    const Fd reset = Come(Validate() + Set("k", "reset"));
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(reset.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
  }
  const Fd early = Come(Validate() + Count() + Get("k"));
  Start();
  EXPECT_EQ(Answer(early, 16), Number(0) + Text(""));
  EXPECT_EQ(server_->connection_count(), 1U);
}

TEST_F(PassedStoreTest, WithoutDescriptorsAConnectionIsLostAndTheStoreGoesOn) {
  Start();
  // What the kernel leaves of a packet whose descriptor has no room (packet_test.cc). To have none
  // here would deny UBSan the pipe by which it looks at objects.
  ASSERT_EQ(SendPacket(pair_.second.get(), "c", {}), 0);
  const Fd next = Come(Validate() + Ping(2));
  EXPECT_EQ(Answer(next, 4), Number(2, 4));
}

TEST_F(PassedStoreTest, TooManyThatWaitAreClosed) {
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit few{.rlim_cur = 2000, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &few);
  FdPair pair = *MakeMessagePair();
  rendezvous::ConnectionSender sender(loop_.get(), pair.second.get());
  size_t closed = 0;
  for (int i = 0; i < 1500 && closed == 0; ++i) {
    FdPair pipe = *MakePipe();
    sender.Send(std::move(pipe.second));
    char byte = 0;
    ASSERT_TRUE(SetNonBlocking(pipe.first.get(), true).ok());
    if (read(pipe.first.get(), &byte, 1) == 0) ++closed;
  }
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(closed, 1U);
}

}  // namespace
}  // namespace ddprun::launcher
