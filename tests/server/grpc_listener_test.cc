#include "rendezvous/wire/grpc_listener.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/fd.h"
#include "ddprun/rendezvous/v1/rendezvous.grpc.pb.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/wire/tcp_listener.h"

namespace ddprun::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::string Text(const absl::Status& status) { return std::string(status.message()); }

// A listener of somebody else.
Fd Holder(int family, int* port) {
  Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_addr = in6addr_loopback;
  sockaddr_in v4{};
  v4.sin_family = AF_INET;
  v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const bool six = family == AF_INET6;
  auto* address = six ? reinterpret_cast<sockaddr*>(&v6) : reinterpret_cast<sockaddr*>(&v4);
  socklen_t length = six ? sizeof(v6) : sizeof(v4);
  DDPRUN_CHECK(bind(fd.get(), address, length) == 0 && listen(fd.get(), 1) == 0, "no listener");
  DDPRUN_CHECK(getsockname(fd.get(), address, &length) == 0, "no name");
  *port = ntohs(six ? v6.sin6_port : v4.sin_port);
  return fd;
}

// False in containers without IPv6; then its cases are left out, and the test says so.
bool HasIpv6() {
  static const bool has = CheckListenable("[::1]:0").ok();
  if (!has) GTEST_LOG_(WARNING) << "no IPv6 on this machine: its cases are skipped";
  return has;
}

class ListenerTest : public ::testing::Test {
 protected:
  std::string path_ = absl::StrCat(::testing::TempDir(), "/listener.", getpid());
  std::string unix_ = absl::StrCat("unix:", path_);
  v1::Rendezvous::Service service_;  // answers UNIMPLEMENTED
  void TearDown() override { unlink(path_.c_str()); }
};

TEST_F(ListenerTest, TakesAFreePort) {
  std::vector<std::pair<std::string, std::string>> cases = {
      {"127.0.0.1:0", "127.0.0.1"}, {"0.0.0.0:0", "127.0.0.1"}, {"localhost:0", "localhost"}};
  if (HasIpv6()) {
    cases.emplace_back("[::1]:0", "[::1]");
    cases.emplace_back("[::]:0", "[::1]");
    cases.emplace_back("[::]:0", "127.0.0.1");
  }
  for (const auto& [listen, host] : cases) {
    const auto listener = StartGrpcListener(listen, &service_);
    ASSERT_TRUE(listener.ok()) << listener.status();
    EXPECT_GT(listener->port, 0) << listen;
    // A service of gRPC's answers there.
    const auto reply = FetchStatus(absl::StrCat(host, ":", listener->port), "", absl::Seconds(5));
    EXPECT_TRUE(absl::IsUnimplemented(reply.status())) << listen << " " << reply.status();
  }
}

TEST_F(ListenerTest, AFreePortIsNoneOfTheAvoided) {
  std::vector<uint16_t> avoided;  // a fourth of the usual range, where the kernel begins
  for (int port = 32768; port < 40000; ++port) avoided.push_back(static_cast<uint16_t>(port));
  for (const char* listen : {"127.0.0.1:0", "[::]:0", "localhost:0"}) {
    for (int i = 0; i < 30; ++i) {
      EXPECT_FALSE(absl::c_linear_search(avoided, ListenTcp(listen, avoided)->port)) << listen;
    }
  }
}

TEST_F(ListenerTest, APortInUseIsNamedWithItsErrno) {
  for (const int family : {AF_INET, AF_INET6}) {
    if (family == AF_INET6 && !HasIpv6()) continue;
    int port = 0;
    const Fd holder = Holder(family, &port);
    const std::string listen = absl::StrCat(family == AF_INET ? "127.0.0.1" : "[::1]", ":", port);
    const auto listener = StartGrpcListener(listen, &service_);
    EXPECT_TRUE(absl::IsUnavailable(listener.status())) << listener.status();
    EXPECT_THAT(Text(listener.status()),
                HasSubstr(absl::StrCat("cannot listen on ", listen,
                                       ": Address already in use (errno 98, EADDRINUSE); another "
                                       "job or service holds that port")));
  }
}

TEST_F(ListenerTest, APortInUseOnOneAddressIsInUseForAll) {
  int port = 0;
  const Fd holder = Holder(AF_INET, &port);
  const auto listener = StartGrpcListener(absl::StrCat("0.0.0.0:", port), &service_);
  EXPECT_TRUE(absl::IsUnavailable(listener.status())) << listener.status();
}

TEST_F(ListenerTest, TwoOfUsDoNotShareAPort) {
  const auto first = StartGrpcListener("127.0.0.1:0", &service_);
  ASSERT_TRUE(first.ok());
  v1::Rendezvous::Service other;
  const auto second = StartGrpcListener(absl::StrCat("127.0.0.1:", first->port), &other);
  EXPECT_THAT(Text(second.status()), HasSubstr("EADDRINUSE"));
}

TEST_F(ListenerTest, APortIsFreeAgainAfterItsServer) {
  auto first = StartGrpcListener("127.0.0.1:0", &service_);
  ASSERT_TRUE(first.ok());
  const std::string listen = absl::StrCat("127.0.0.1:", first->port);
  // A connection leaves the port in TIME_WAIT.
  EXPECT_TRUE(absl::IsUnimplemented(FetchStatus(listen, "", absl::Seconds(5)).status()));
  first->server->Shutdown();
  first->server.reset();
  v1::Rendezvous::Service other;
  EXPECT_TRUE(StartGrpcListener(listen, &other).ok());
}

TEST_F(ListenerTest, AnAddressOfAnotherMachine) {
  const auto listener = StartGrpcListener("192.0.2.1:29400", &service_);  // RFC 5737: nobody's
  EXPECT_THAT(Text(listener.status()),
              AllOf(HasSubstr("EADDRNOTAVAIL"), HasSubstr("not an address of this machine")));
}

TEST_F(ListenerTest, ANameWithoutAddress) {
  const auto listener = StartGrpcListener("no-such-host.invalid:29400", &service_);
  EXPECT_TRUE(absl::IsUnavailable(listener.status())) << listener.status();
  EXPECT_THAT(Text(listener.status()), HasSubstr("no-such-host.invalid"));
}

TEST_F(ListenerTest, WhatIsNoAddress) {
  for (const char* listen : {"", "29400", ":29400", "host", "host:", "host:x", "host:-1",
                             "host:65536", "::1:29400", "unix:"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(CheckListenable(listen))) << listen;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(
      CheckListenable(absl::StrCat("unix:/", std::string(sizeof(sockaddr_un::sun_path), 'x')))));
}

TEST_F(ListenerTest, AUnixSocket) {
  const auto listener = StartGrpcListener(unix_, &service_);
  ASSERT_TRUE(listener.ok()) << listener.status();
  EXPECT_EQ(listener->port, 0);
  EXPECT_TRUE(absl::IsUnimplemented(FetchStatus(unix_, "", absl::Seconds(5)).status()));
}

TEST_F(ListenerTest, ALiveUnixSocketIsNotTakenAway) {
  const auto first = StartGrpcListener(unix_, &service_);
  ASSERT_TRUE(first.ok()) << first.status();
  v1::Rendezvous::Service other;
  const auto second = StartGrpcListener(unix_, &other);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(Text(second.status()), HasSubstr("another process serves there"));
  EXPECT_TRUE(absl::IsUnimplemented(FetchStatus(unix_, "", absl::Seconds(5)).status()));
}

TEST_F(ListenerTest, ASocketLeftByADeadServerIsReplaced) {
  {
    const Fd dead(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, path_.c_str(), path_.size());
    ASSERT_EQ(bind(dead.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    ASSERT_EQ(listen(dead.get(), 1), 0);
  }
  const auto listener = StartGrpcListener(unix_, &service_);
  EXPECT_TRUE(listener.ok()) << listener.status();
}

TEST_F(ListenerTest, AFileIsNotReplaced) {
  std::ofstream(path_) << "precious";
  const auto listener = StartGrpcListener(unix_, &service_);
  EXPECT_TRUE(absl::IsAlreadyExists(listener.status())) << listener.status();
  std::string text;
  std::ifstream(path_) >> text;
  EXPECT_EQ(text, "precious");
}

TEST_F(ListenerTest, AFolderThatIsMissing) {
  const auto listener = StartGrpcListener("unix:/no/such/folder/socket", &service_);
  EXPECT_THAT(Text(listener.status()), HasSubstr("ENOENT"));
}

}  // namespace
}  // namespace ddprun::rendezvous
