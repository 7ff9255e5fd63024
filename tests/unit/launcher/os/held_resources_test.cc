#include "launcher/os/processes.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/fd.h"

namespace ddprun::launcher {
namespace {

TEST(HeldResourceTest, AListeningPortIsFoundAndAConnectionIsNone) {
  EXPECT_EQ(HeldResource(getpid()), "");
  Fd server(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  ASSERT_EQ(bind(server.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(HeldResource(getpid()), "");
  ASSERT_EQ(listen(server.get(), 1), 0);
  ASSERT_EQ(getsockname(server.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  EXPECT_EQ(HeldResource(getpid()), absl::StrCat("port ", ntohs(address.sin_port)));
  Fd client(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(connect(client.get(), reinterpret_cast<sockaddr*>(&address), size), 0);
  server.Reset();
  EXPECT_EQ(HeldResource(getpid()), "");
}

TEST(HeldResourceTest, AProcessThatCannotBeSeenMayHoldAnything) {
  EXPECT_EQ(HeldResource(-1), "what can't be seen");
}

TEST(CommandTextTest, IsOneLine) {
  EXPECT_TRUE(absl::StrContains(CommandText(getpid()), "launcher_os_test"));
  EXPECT_EQ(CommandText(-1), "");
}

}  // namespace
}  // namespace ddprun::launcher
