#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <iostream>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "launcher/machine/host_probe.h"

namespace ddprun::launcher {
namespace {

// A worker's server on 0.0.0.0 or [::]; invalid when bind(2) or listen(2) fails.
Fd Listen(int family, uint16_t port, bool reuse) {
  Fd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuse ? 1 : 0;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_storage storage{};
  storage.ss_family = static_cast<sa_family_t>(family);
  // The port lies at the same place in both families.
  reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
  const socklen_t length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&storage), length) != 0 ||
      listen(fd.get(), 1) != 0) {
    fd.Reset();
  }
  return fd;
}

TEST(PortProbeTest, ReservedPortsDiffer) {
  std::vector<ReservedPort> reserved;
  std::set<uint16_t> ports;
  for (int i = 0; i < 200; ++i) {
    reserved.push_back(*ReservePort(0));
    ports.insert(reserved.back().port);
  }
  EXPECT_EQ(ports.size(), 200U);
  EXPECT_FALSE(ports.contains(0));
}

// R11: what the reservation is for.
TEST(PortProbeTest, AWorkersStoreCanListenOnAReservedPortAndOthersCanNot) {
  const ReservedPort reserved = *ReservePort(0);
  std::vector<int> families = {AF_INET};
  if (Listen(AF_INET6, 0, true).valid()) {
    families.push_back(AF_INET6);
  } else {
    std::cout << "no IPv6 on this machine: IPv4 only\n";
  }
  for (const int family : families) {
    EXPECT_TRUE(Listen(family, reserved.port, /*reuse=*/true).valid()) << family;
    EXPECT_FALSE(Listen(family, reserved.port, /*reuse=*/false).valid()) << family;
  }
}

// R11: the agent's own store.
TEST(PortProbeTest, NobodyElseCanListenOnAPortThatIsListenedOn) {
  for (const PortScope scope : {PortScope::kAllAddresses, PortScope::kLoopback}) {
    const ReservedPort reserved = *ReservePort(0, scope);
    ASSERT_TRUE(ListenOn(reserved).ok());
    EXPECT_FALSE(Listen(AF_INET, reserved.port, /*reuse=*/true).valid());
    // Both families, as torch's server binds first.
    EXPECT_FALSE(Listen(AF_INET6, reserved.port, /*reuse=*/true).valid());
    EXPECT_TRUE(absl::IsUnavailable(ReservePort(reserved.port).status()));
  }
}

TEST(PortProbeTest, ReservesTheGivenPort) {
  uint16_t port = 0;
  {
    const ReservedPort any = *ReservePort(0);
    port = any.port;
  }
  EXPECT_EQ(ReservePort(port)->port, port);
}

TEST(PortProbeTest, NamesAPortInUse) {
  const ReservedPort reserved = *ReservePort(0);
  const Fd server = Listen(AF_INET, reserved.port, true);
  ASSERT_TRUE(server.valid());
  for (const absl::Status& status :
       {ReservePort(reserved.port).status(), CheckListenable("127.0.0.1", reserved.port),
        CheckListenable("0.0.0.0", reserved.port), CheckListenable("localhost", reserved.port)}) {
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), absl::StrCat(reserved.port))) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), "EADDRINUSE")) << status;
  }
}

TEST(PortProbeTest, AFreePortIsListenable) {
  const ReservedPort reserved = *ReservePort(0);
  for (const char* host : {"127.0.0.1", "0.0.0.0", "localhost"}) {
    EXPECT_TRUE(CheckListenable(host, reserved.port).ok()) << host;
  }
  // It left nothing behind.
  EXPECT_TRUE(Listen(AF_INET, reserved.port, true).valid());
}

TEST(PortProbeTest, NamesAnAddressOfAnotherMachine) {
  const absl::Status status = CheckListenable("192.0.2.7", 29400);
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_TRUE(absl::StrContains(status.message(), "EADDRNOTAVAIL")) << status;
  EXPECT_TRUE(absl::IsNotFound(CheckListenable("no-such-host.invalid", 29400)));
}

}  // namespace
}  // namespace ddprun::launcher
