#include "base/errno_status.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <string>

namespace ddprun {
namespace {

using ::testing::StartsWith;

TEST(ErrnoStatusTest, SaysWhatFailedAndHow) {
  const absl::Status status = ErrnoStatus(EACCES, "open '/x'");
  EXPECT_EQ(status.message(), "open '/x': Permission denied (errno 13, EACCES)");
  EXPECT_TRUE(absl::IsPermissionDenied(status));
}

TEST(ErrnoStatusTest, KnowsNoNameForWhatIsNoErrno) {
  EXPECT_EQ(ErrnoStatus(9999, "call").message(), "call: unknown error (errno 9999)");
}

void SetSoft(__rlimit_resource resource, rlim_t value) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(resource, &limit), 0);
  limit.rlim_cur = value;
  ASSERT_EQ(setrlimit(resource, &limit), 0);
}

TEST(ErrnoStatusTest, NamesTheLimitThatIsMetAndHowToRaiseIt) {
  SetSoft(RLIMIT_NOFILE, 64);
  EXPECT_THAT(std::string(ErrnoStatus(EMFILE, "pipe2").message()),
              StartsWith("pipe2: Too many open files (errno 24, EMFILE); this process may have 64 "
                         "open files (ulimit -n): raise that in the shell that starts ddprun"));
  SetSoft(RLIMIT_FSIZE, 4096);
  EXPECT_THAT(std::string(ErrnoStatus(EFBIG, "write").message()),
              StartsWith("write: File too large (errno 27, EFBIG); a file of this process may have "
                         "4096 bytes (ulimit -f)"));
  SetSoft(RLIMIT_FSIZE, RLIM_INFINITY);  // a file system may have a limit of its own
  EXPECT_EQ(LimitAdvice(EFBIG), "");
  EXPECT_EQ(LimitAdvice(ENOSPC), "");
}

}  // namespace
}  // namespace ddprun
