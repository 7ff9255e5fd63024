#include "base/errno_status.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace ddprun {
namespace {

TEST(ErrnoStatusTest, SaysWhatFailedAndHow) {
  const absl::Status status = ErrnoStatus(EACCES, "open '/x'");
  EXPECT_EQ(status.message(), "open '/x': Permission denied (errno 13, EACCES)");
  EXPECT_TRUE(absl::IsPermissionDenied(status));
}

TEST(ErrnoStatusTest, KnowsNoNameForWhatIsNoErrno) {
  EXPECT_EQ(ErrnoStatus(9999, "call").message(), "call: unknown error (errno 9999)");
}

}  // namespace
}  // namespace ddprun
