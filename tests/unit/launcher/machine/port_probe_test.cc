#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iostream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
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

std::pair<int, int> KernelPorts() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  std::pair<int, int> range;
  file >> range.first >> range.second;
  return range;
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

// A fourth of what the kernel gives; it begins with the lower half where SO_REUSEADDR is set.
TEST(PortProbeTest, AnAvoidedPortIsNotReserved) {
  const auto [first, last] = KernelPorts();
  std::vector<uint16_t> avoided;
  for (int port = first; port < first + (last - first) / 4; ++port) {
    avoided.push_back(static_cast<uint16_t>(port));
  }
  for (int i = 0; i < 100; ++i) EXPECT_GE(ReservePort(0, avoided)->port, avoided.size() + first);
  for (const uint16_t port : avoided) {  // one of them is free: other tests use some
    const absl::StatusOr<ReservedPort> asked_for = ReservePort(port, avoided);
    if (!asked_for.ok() && port != avoided.back()) continue;
    ASSERT_TRUE(asked_for.ok()) << asked_for.status();
    EXPECT_EQ(asked_for->port, port);
    break;
  }
}

TEST(PortProbeTest, TwinWithoutAnyItIs) {
  const auto [first, last] = KernelPorts();
  int low = 0;
  for (int i = 0; i < 100; ++i) low += ReservePort(0)->port < first + (last - first) / 4 ? 1 : 0;
  EXPECT_GT(low, 0);
}

TEST(PortProbeTest, AdviceAboutPortsOfTheKernel) {
  const std::string root = ::testing::TempDir() + "/port_probe." + std::to_string(getpid());
  std::filesystem::create_directories(root + "/proc/sys/net/ipv4");
  EXPECT_EQ(KernelPortsHint(40000, root), "") << "nothing is known";
  std::ofstream(root + "/proc/sys/net/ipv4/ip_local_port_range") << "32768\t60999\n";
  const std::string advice =
      "; the kernel gives ports 32768 to 60999 to any connection (net.ipv4.ip_local_port_range): "
      "one outside is safer";
  EXPECT_EQ(KernelPortsHint(32768, root), advice);
  EXPECT_EQ(KernelPortsHint(60999, root), advice);
  EXPECT_EQ(KernelPortsHint(32767, root), "");
  EXPECT_EQ(KernelPortsHint(61000, root), "");
  std::filesystem::remove_all(root);
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
  const ReservedPort reserved = *ReservePort(0);
  ASSERT_TRUE(ListenOn(reserved).ok());
  EXPECT_FALSE(Listen(AF_INET, reserved.port, /*reuse=*/true).valid());
  // IPv6 is taken, too: torch's server binds it first.
  EXPECT_FALSE(Listen(AF_INET6, reserved.port, /*reuse=*/true).valid());
  EXPECT_TRUE(absl::IsUnavailable(ReservePort(reserved.port).status()));
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
  // The check left no socket behind.
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
