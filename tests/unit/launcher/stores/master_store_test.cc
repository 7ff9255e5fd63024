#include "launcher/stores/master_store.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/fd.h"

namespace ddprun::launcher {
namespace {

// Whether a program that isn't a worker's store gets the port, at another address than the agent's.
bool OthersGet(uint16_t port) {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = inet_addr("127.0.0.2");
  address.sin_port = htons(port);
  return bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) == 0;
}

// R11: torch's server listens on all addresses; a port that somebody has at one isn't free. So does
// the agent's: whatever name of this machine workers are given, the store is there.
TEST(MasterStore, ThePortIsHeldAtAllAddresses) {
  for (const bool agent_store : {false, true}) {
    LaunchPlan plan;
    plan.job.nodes_max = 1;
    plan.agent_store = agent_store;
    MasterStore store(&plan);
    ASSERT_TRUE(store.TakePort().ok());
    EXPECT_FALSE(OthersGet(store.port()));
    const uint16_t first = store.port();
    store.RenewPort();
    EXPECT_NE(store.port(), first);
    EXPECT_FALSE(OthersGet(store.port()));
  }
}

}  // namespace
}  // namespace ddprun::launcher
