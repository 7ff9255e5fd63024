#include "base/fd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>

namespace ddprun {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(Pidfd, HoldsAProcess) {
  EXPECT_TRUE(OpenPidfd(getpid(), "this process").ok());
  const absl::Status none = OpenPidfd(INT_MAX, "process 2147483647").status();
  EXPECT_TRUE(absl::IsNotFound(none)) << none;
  EXPECT_THAT(std::string(none.message()), HasSubstr("pidfd_open of process 2147483647"));
  EXPECT_THAT(std::string(none.message()), Not(HasSubstr("seccomp")));
}

TEST(Pidfd, WhatRefusesThemIsAnOldKernelOrAFilter) {
  for (const char* old : {"4.18.0-553.el8_10.x86_64", "5.3.18-lp152", "3.10.0"}) {
    EXPECT_THAT(PidfdAdvice(old), HasSubstr("pidfds need Linux 5.4 or newer")) << old;
    EXPECT_THAT(PidfdAdvice(old), HasSubstr(old));
  }
  for (const char* recent : {"5.4.0-150-generic", "5.10.0", "6.1.0-18-amd64", "10.0", "odd"}) {
    EXPECT_THAT(PidfdAdvice(recent), HasSubstr("--security-opt seccomp=unconfined")) << recent;
  }
}

}  // namespace
}  // namespace ddprun
