#include "base/text.h"

#include <gtest/gtest.h>

#include <csignal>

namespace ddprun {
namespace {

TEST(SignalNameTest, NamesEverySignal) {
  EXPECT_EQ(SignalName(SIGKILL), "SIGKILL");
  EXPECT_EQ(SignalName(SIGSEGV), "SIGSEGV");
  EXPECT_EQ(SignalName(SIGRTMIN), "SIGRTMIN");
  EXPECT_EQ(SignalName(SIGRTMIN + 2), "SIGRTMIN+2");
  EXPECT_EQ(SignalName(99), "signal 99");
  EXPECT_EQ(SignalName(0), "signal 0");
  EXPECT_EQ(SignalName(-1), "signal -1");
}

}  // namespace
}  // namespace ddprun
