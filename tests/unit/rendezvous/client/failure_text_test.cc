#include "rendezvous/client/failure_text.h"

#include <gtest/gtest.h>

#include <string>

namespace ddprun::rendezvous {
namespace {

constexpr char kHint[] = "; does it speak TLS?";

// Which text gRPC 1.51 gives depends on which comes first: its own read or write, or the reset.
TEST(BareReason, HowAConnectionEndsBeforeItIsOneHasTheHint) {
  for (const std::string end :
       {"Socket closed", "Endpoint read failed", "recvmsg:Connection reset by peer",
        "Connection reset by peer", "Broken pipe"}) {
    const std::string text =
        "failed to connect to all addresses; last error: UNKNOWN: "
        "ipv4:127.0.0.1:2379: " +
        end;
    EXPECT_EQ(BareReason(text, kHint), "127.0.0.1:2379: " + end + kHint);
  }
}

TEST(BareReason, OfOneThatEndsLaterOrIsRefusedNobodyAsksWhy) {
  EXPECT_EQ(BareReason("recvmsg:Connection reset by peer", kHint),
            "recvmsg:Connection reset by peer");
  EXPECT_EQ(BareReason("failed to connect to all addresses; last error: UNKNOWN: "
                       "ipv4:127.0.0.1:2379: Failed to connect to remote host: Connection refused",
                       kHint),
            "127.0.0.1:2379: Connection refused");
}

TEST(BareReason, OfAConnectThatWasGivenUp) {
  for (const std::string end :
       {"Failed to connect to remote host: Connection reset by peer", "tcp handshaker shutdown"}) {
    const std::string text =
        "failed to connect to all addresses; last error: UNKNOWN: ipv4:10.77.0.1:29401: " + end;
    EXPECT_EQ(BareReason(text, kHint),
              "10.77.0.1:29401: nothing comes back: the way there or back is cut, a firewall drops "
              "packets, or the machine is down");
  }
}

// What gRPC 1.51 says where this process has no descriptor for the connection.
TEST(DescribeFailure, WithoutADescriptorThereIsNoOtherTry) {
  const grpc::Status none(grpc::StatusCode::UNAVAILABLE,
                          "failed to connect to all addresses; last error: UNKNOWN: "
                          "ipv4:127.0.0.1:29400: Too many open files");
  const absl::Status status = DescribeFailure("127.0.0.1:29400", none);
  EXPECT_FALSE(IsWorthRetrying(status));
  EXPECT_TRUE(LacksDescriptors(status));
  EXPECT_NE(status.message().find("open files (ulimit -n)"), absl::string_view::npos) << status;
  // What else is exhausted, and what may pass.
  EXPECT_FALSE(LacksDescriptors(absl::ResourceExhaustedError("as many jobs as it takes")));
  const grpc::Status refused(grpc::StatusCode::UNAVAILABLE, "Connection refused");
  EXPECT_TRUE(IsWorthRetrying(DescribeFailure("127.0.0.1:29400", refused)));
}

}  // namespace
}  // namespace ddprun::rendezvous
