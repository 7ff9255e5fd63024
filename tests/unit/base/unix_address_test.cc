#include "base/address.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <string>

namespace ddprun {
namespace {

TEST(UnixAddress, OfPathsThatFit) {
  for (const size_t length : {size_t{1}, sizeof(sockaddr_un::sun_path) - 1}) {
    const std::string path(length, 'x');
    const absl::StatusOr<sockaddr_un> address = UnixAddress(path);
    ASSERT_TRUE(address.ok()) << address.status();
    EXPECT_EQ(address->sun_family, AF_UNIX);
    EXPECT_EQ(std::string(address->sun_path), path);
  }
}

TEST(UnixAddress, OfOthersThereIsNone) {
  for (const size_t length : {size_t{0}, sizeof(sockaddr_un::sun_path)}) {
    EXPECT_THAT(std::string(UnixAddress(std::string(length, 'x')).status().message()),
                testing::HasSubstr("1 to 107 are allowed"));
  }
}

}  // namespace
}  // namespace ddprun
