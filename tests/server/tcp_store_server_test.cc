#include "launcher/stores/tcp_store_server.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "launcher/machine/host_probe.h"
#include "tests/support/loop_until.h"
#include "tests/support/tcp_store_bytes.h"

namespace ddprun::launcher {
namespace {

using namespace tcp_store_bytes;  // NOLINT(google-build-using-namespace): the words of the protocol

// A client's socket, on the loop's thread like the server.
class Client {
 public:
  Client(EventLoop* loop, uint16_t port) : loop_(loop) {
    socket_ = Fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(port);
    connected_ =
        connect(socket_.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
    DDPRUN_CHECK(SetNonBlocking(socket_.get(), true).ok(), "fcntl");
  }
  bool connected() const { return connected_; }

  void Send(absl::string_view bytes) {
    EXPECT_TRUE(LoopUntil(loop_, [&] {
      const ssize_t sent = send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (sent > 0) bytes.remove_prefix(static_cast<size_t>(sent));
      if (sent < 0 && errno != EAGAIN) bytes = "";
      Nudge();
      return bytes.empty();
    }));
  }
  // What came, once there are `size` bytes; less when the server closed the connection.
  std::string Receive(size_t size) {
    std::string bytes;
    EXPECT_TRUE(LoopUntil(loop_, [&] {
      std::string chunk(1U << 16, '\0');
      const ssize_t got =
          recv(socket_.get(), chunk.data(), std::min(chunk.size(), size - bytes.size()), 0);
      if (got > 0) bytes += chunk.substr(0, static_cast<size_t>(got));
      Nudge();
      return bytes.size() == size || got == 0 || (got < 0 && errno != EAGAIN);
    }));
    return bytes;
  }
  bool IsClosed() { return Receive(1).empty(); }
  void Reset() { socket_.Reset(); }
  // Closes with an RST instead of a FIN.
  void Abort() {
    const linger now{.l_onoff = 1, .l_linger = 0};
    setsockopt(socket_.get(), SOL_SOCKET, SO_LINGER, &now, sizeof(now));
    socket_.Reset();
  }

 private:
  // Keeps the loop's rounds coming while only this socket has something to do.
  void Nudge() {
    loop_->Post([] {});
  }

  EventLoop* loop_;
  Fd socket_;
  bool connected_ = false;
};

class TcpStoreServerTest : public ::testing::Test {
 protected:
  void Start(const TcpStoreBounds& bounds = {},
             const std::optional<rendezvous::DoorBounds>& door = std::nullopt) {
    server_.reset();
    auto server = TcpStoreServer::Start(
        loop_.get(), Fd(fcntl(port_.socket.get(), F_DUPFD_CLOEXEC, 0)),
        {.bounds = bounds, .door = door, .this_machine_only = this_machine_only_});
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  Client Connect() { return Client(loop_.get(), port_.port); }
  Client Greeted() {
    Client client = Connect();
    client.Send(Validate());
    return client;
  }
  bool ConnectionsBecome(size_t count) {
    return LoopUntil(loop_.get(), [&] { return server_->connection_count() == count; });
  }

  std::unique_ptr<EventLoop> loop_ = *EventLoop::Create();
  ReservedPort port_ = *ReservePort(0);
  bool this_machine_only_ = false;
  std::unique_ptr<TcpStoreServer> server_;
};

TEST_F(TcpStoreServerTest, ServesManyClients) {
  Start();
  std::vector<Client> clients;
  for (int i = 0; i < 200; ++i) clients.push_back(Greeted());
  for (Client& client : clients) client.Send(Add("n", 1));
  for (Client& client : clients) EXPECT_EQ(client.Receive(8).size(), 8U);
  for (Client& client : clients) client.Send(Wait({"go"}));
  clients[7].Send(Get("n"));
  EXPECT_EQ(clients[7].Receive(11), Text("200"));
  Client last = Greeted();
  last.Send(Set("go", ""));
  for (Client& client : clients) EXPECT_EQ(client.Receive(1), std::string(1, '\0'));
  EXPECT_EQ(server_->connection_count(), 201U);
  clients.clear();
  EXPECT_TRUE(ConnectionsBecome(1));
}

// A client that doesn't read its answers holds up itself alone, and the memory is that of the
// value.
TEST_F(TcpStoreServerTest, LargeValuesGoToSlowReadersPieceByPiece) {
  Start();
  std::string large(8U << 20, 'x');  // three are more than the kernel's buffers hold
  for (size_t i = 0; i < large.size(); i += 4096) large[i] = static_cast<char>('a' + i / 4096 % 26);
  Client setter = Greeted();
  setter.Send(Set("large", large) + Ping(1));
  EXPECT_EQ(setter.Receive(4), Number(1, 4));
  Client slow = Connect();
  slow.Send(Validate() + Get("large") + MultiGet({"large", "absent", "large"}) + Ping(5));
  Client quick = Greeted();
  quick.Send(Set("other", "value") + Get("other"));
  EXPECT_EQ(quick.Receive(13), Text("value"));
  quick.Send(Set("large", "new"));  // what is on its way stays
  EXPECT_EQ(slow.Receive(8 + large.size()), Text(large));
  EXPECT_EQ(slow.Receive(2 * (8 + large.size()) + 8), Text(large) + Text("") + Text(large));
  EXPECT_EQ(slow.Receive(4), Number(5, 4));
}

TEST_F(TcpStoreServerTest, WhatAClientDoesCostsItsOwnConnection) {
  Start();
  Client good = Greeted();
  good.Send(Set("k", "v"));
  for (const std::string& bytes :
       {std::string("GET / HTTP/1.1\r\n\r\n"), Validate() + Command(77),
        Validate() + Command(3) + Number(1U << 30), std::string(100'000, '\xff')}) {
    Client bad = Connect();
    bad.Send(bytes);
    EXPECT_TRUE(bad.IsClosed());
  }
  Client waiting = Greeted();
  waiting.Send(Wait({"never"}));
  Client half = Connect();
  half.Send((Validate() + Set("k", "other")).substr(0, 20));
  Client unread = Connect();
  unread.Send(Validate() + Set("large", std::string(8U << 20, 'x')) +
              MultiGet({"large", "large", "large"}));
  EXPECT_EQ(server_->connection_count(), 4U);
  waiting.Abort();
  half.Abort();
  unread.Abort();
  EXPECT_TRUE(ConnectionsBecome(1));
  good.Send(Get("k"));
  EXPECT_EQ(good.Receive(9), Text("v"));
}

// A generation after another on the port that the user gave.
TEST_F(TcpStoreServerTest, TheNextServerHasNeitherKeysNorConnectionsOfTheLast) {
  Start();
  Client old = Greeted();
  old.Send(Set("k", "old") + Ping(1));
  EXPECT_EQ(old.Receive(4), Number(1, 4));
  server_.reset();
  EXPECT_TRUE(old.IsClosed());
  // Between two generations: one that gives up has ended, one that waits is early.
  Client abandoned = Greeted();
  abandoned.Send(Set("k", "abandoned"));
  abandoned.Reset();
  Client early = Connect();
  EXPECT_TRUE(early.connected());
  Start();
  EXPECT_TRUE(ConnectionsBecome(1));
  early.Send(Validate() + Count() + Get("k"));
  EXPECT_EQ(early.Receive(16), Number(0) + Text(""));
}

// Clients of another machine: tests/cluster/address_test.py.
TEST_F(TcpStoreServerTest, AStoreForThisMachineAloneAnswersIt) {
  this_machine_only_ = true;
  Start();
  Client client = Greeted();
  client.Send(Ping(1));
  EXPECT_EQ(client.Receive(4), Number(1, 4));
}

TEST_F(TcpStoreServerTest, TheDescriptorsAreClosedOnExec) {
  Start();
  Client client = Greeted();
  client.Send(Ping(1));
  EXPECT_EQ(client.Receive(4), Number(1, 4));
  int sockets = 0;
  for (int fd = 3; fd < 256; ++fd) {
    const int flags = fcntl(fd, F_GETFD);
    if (flags < 0) continue;
    sockaddr_in address{};
    socklen_t length = sizeof(address);
    if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) != 0) continue;
    if (ntohs(address.sin_port) != port_.port) continue;
    ++sockets;
    EXPECT_TRUE(flags & FD_CLOEXEC) << fd;
  }
  EXPECT_EQ(sockets, 3);  // the port's, its duplicate, the connection's
}

TEST_F(TcpStoreServerTest, APortThatSomebodyListensOnIsAnError) {
  const uint16_t port = port_.port;
  const ReservedPort other = *ReservePort(port);
  ASSERT_TRUE(ListenOn(other).ok());
  const auto server =
      TcpStoreServer::Start(loop_.get(), Fd(fcntl(port_.socket.get(), F_DUPFD_CLOEXEC, 0)), {});
  EXPECT_TRUE(absl::IsUnavailable(server.status())) << server.status();
}

// Within a second (Doorkeeper::kRipeAfter), as the service's.
TEST_F(TcpStoreServerTest, WhoAsksNothingKeepsNobodyOut) {
  Start({}, rendezvous::DoorBounds{.strangers = 3, .per_address = 3});
  std::vector<Client> idle;
  for (int i = 0; i < 5; ++i) idle.push_back(Connect());
  idle[1].Send(Validate().substr(0, 1));  // no request yet
  std::vector<Client> workers;
  for (int i = 0; i < 3; ++i) workers.push_back(Connect());
  for (Client& worker : workers) worker.Send(Validate() + Ping(7));
  for (Client& worker : workers) EXPECT_EQ(worker.Receive(4), Number(7, 4));
  EXPECT_TRUE(idle[0].IsClosed());
  EXPECT_TRUE(idle[1].IsClosed());
  EXPECT_LE(server_->connection_count(), 3 + 3U);
}

TEST_F(TcpStoreServerTest, TwinWhoHasAskedIsNotCounted) {
  Start({}, rendezvous::DoorBounds{.strangers = 3, .per_address = 3});
  std::vector<Client> workers;
  for (int i = 0; i < 20; ++i) {
    workers.push_back(Greeted());
    workers.back().Send(Ping(1));
    EXPECT_EQ(workers.back().Receive(4), Number(1, 4));
  }
  EXPECT_EQ(server_->connection_count(), 20U);
}

TEST_F(TcpStoreServerTest, WithoutDescriptorsConnectionsWaitForOneThatEnds) {
  Start();
  Client first = Greeted();
  first.Send(Ping(1));
  EXPECT_EQ(first.Receive(4), Number(1, 4));
  Client second = Connect();  // has its socket before the limit falls
  EXPECT_TRUE(second.connected());
  rlimit before{};
  getrlimit(RLIMIT_NOFILE, &before);
  const rlimit none{.rlim_cur = 3, .rlim_max = before.rlim_max};
  setrlimit(RLIMIT_NOFILE, &none);
  second.Send(Validate() + Ping(2));
  // Rounds in which it can't be accepted; the agent neither spins nor fails.
  first.Send(Ping(3));
  EXPECT_EQ(first.Receive(4), Number(3, 4));
  EXPECT_EQ(server_->connection_count(), 1U);
  setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_EQ(second.Receive(4), Number(2, 4));
}

}  // namespace
}  // namespace ddprun::launcher
