#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>

#include "absl/strings/match.h"
#include "launcher/machine/host_probe.h"

namespace ddprun::launcher {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;

TEST(AddressProbeTest, KnowsItsName) {
  char name[HOST_NAME_MAX + 1] = "";
  ASSERT_EQ(gethostname(name, sizeof(name)), 0);
  EXPECT_EQ(Hostname(), name);
}

TEST(AddressProbeTest, ResolvesLiteralsAndNames) {
  EXPECT_THAT(*ResolveHost("192.0.2.7"), ElementsAre("192.0.2.7"));
  EXPECT_THAT(*ResolveHost("2001:db8::7"), ElementsAre("2001:db8::7"));
  EXPECT_THAT(*ResolveHost("localhost"), Contains(::testing::AnyOf("127.0.0.1", "::1")));
}

TEST(AddressProbeTest, SaysWhyANameIsUnknown) {
  // Unavailable: this machine has no name server that could say so.
  const auto is_unknown = [](const absl::Status& status) {
    return absl::IsNotFound(status) || absl::IsUnavailable(status);
  };
  const absl::Status status = ResolveHost("no-such-host.invalid").status();
  EXPECT_TRUE(is_unknown(status));
  EXPECT_TRUE(absl::StrContains(status.message(), "'no-such-host.invalid'")) << status;
  EXPECT_TRUE(is_unknown(IsLocalHost("no-such-host.invalid").status()));
  EXPECT_TRUE(is_unknown(LocalAddressToward("no-such-host.invalid", 1).status()));
}

TEST(AddressProbeTest, KnowsWhichHostsItIs) {
  for (const char* host :
       {"127.0.0.1", "127.8.9.10", "::1", "localhost", "0.0.0.0", "::", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(*IsLocalHost(host)) << host;
  }
  // Addresses for documentation (RFC 5737, RFC 3849) are nobody's.
  EXPECT_FALSE(*IsLocalHost("192.0.2.7"));
  EXPECT_FALSE(*IsLocalHost("2001:db8::7"));
}

TEST(AddressProbeTest, FindsTheAddressTowardAHost) {
  EXPECT_EQ(*LocalAddressToward("127.0.0.1", 29400), "127.0.0.1");
  EXPECT_EQ(*LocalAddressToward("127.0.0.5", 0), "127.0.0.1");
}

}  // namespace
}  // namespace ddprun::launcher
