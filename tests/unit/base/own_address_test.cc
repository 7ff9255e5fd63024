#include "base/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace ddprun {
namespace {

using ::testing::Contains;
using ::testing::Not;

TEST(OwnAddressTest, ListsTheAddressesOfItsInterfaces) {
  const absl::StatusOr<std::vector<std::string>> own = OwnAddresses();
  ASSERT_TRUE(own.ok()) << own.status();
  EXPECT_THAT(*own, Contains("127.0.0.1"));
  EXPECT_THAT(*own, Not(Contains("")));
}

TEST(OwnAddressTest, KnowsItsOwn) {
  for (const char* address :
       {"127.0.0.1", "127.8.9.10", "::1", "0.0.0.0", "::", "::ffff:127.0.0.1", "0:0:0:0:0:0:0:1"}) {
    EXPECT_TRUE(IsOwnAddress(address)) << address;
  }
  const absl::StatusOr<std::vector<std::string>> own = OwnAddresses();
  ASSERT_TRUE(own.ok()) << own.status();
  for (const std::string& address : *own) EXPECT_TRUE(IsOwnAddress(address)) << address;
}

TEST(OwnAddressTest, TakesNothingElse) {
  // Addresses for documentation (RFC 5737, RFC 3849) are nobody's.
  for (const char* address : {"192.0.2.7", "2001:db8::7", "fe80::dead:1", "128.0.0.1", "localhost",
                              "", "127.0.0.1.evil", "::127.0.0.1"}) {
    EXPECT_FALSE(IsOwnAddress(address)) << address;
  }
}

}  // namespace
}  // namespace ddprun
