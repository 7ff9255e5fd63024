#include "launcher/os/stack_probe.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>

#include "tests/support/loop_until.h"
#include "tests/unit/launcher/os/temp_tree.h"

namespace ddprun::launcher {
namespace {

// Tools that are shell scripts of the test.
class NativeStackTest : public ::testing::Test {
 protected:
  NativeStackTest() : loop_(*EventLoop::Create()) {}

  void Install(const std::string& name, const std::string& script) {
    const std::string path = tree_.Write("bin/" + name, "#!/bin/sh\n" + script);
    ASSERT_EQ(chmod(path.c_str(), 0755), 0);
  }
  NativeStack::Result Run(absl::Duration limit = absl::Seconds(20)) {
    std::optional<NativeStack::Result> result;
    stack_ = NativeStack::Start(loop_.get(), 4711, "/nowhere:" + tree_.path() + "/bin", limit,
                                [&](NativeStack::Result done) { result = std::move(done); });
    EXPECT_FALSE(result.has_value()) << "never from within Start";
    EXPECT_TRUE(LoopUntil(loop_.get(), [&] { return result.has_value(); }));
    return result.value_or(NativeStack::Result());
  }

  testing::TempTree tree_;
  std::unique_ptr<EventLoop> loop_;
  std::unique_ptr<NativeStack> stack_;
};

TEST_F(NativeStackTest, WithoutAToolThereIsNothing) {
  const NativeStack::Result result = Run();
  EXPECT_EQ(result.tool, "");
  EXPECT_EQ(result.text, "");
}

TEST_F(NativeStackTest, PySpyComesFirst) {
  Install("gdb", "echo never");
  Install("py-spy", "echo \"$@\"; echo noise >&2");
  const NativeStack::Result result = Run();
  EXPECT_EQ(result.tool, "py-spy");
  EXPECT_EQ(result.text, "dump --nonblocking --pid 4711\n");
}

TEST_F(NativeStackTest, GdbOtherwise) {
  Install("gdb", "echo \"$@\"");
  const NativeStack::Result result = Run();
  EXPECT_EQ(result.tool, "gdb");
  EXPECT_NE(result.text.find("-p 4711"), std::string::npos) << result.text;
}

TEST_F(NativeStackTest, WhatCameInTimeIsKeptAndTheToolIsGone) {
  Install("py-spy", "echo begun; echo $$ > " + tree_.path() + "/pid; exec sleep 1000");
  const NativeStack::Result result = Run(absl::Milliseconds(500));
  EXPECT_EQ(result.text, "begun\n");
  const std::string pid = tree_.Read("pid");
  struct stat facts {};
  EXPECT_NE(stat(("/proc/" + pid.substr(0, pid.find('\n'))).c_str(), &facts), 0);
}

TEST_F(NativeStackTest, OutputIsBounded) {
  Install("py-spy", "exec yes");
  EXPECT_EQ(Run().text.size(), NativeStack::kTextMax);
}

}  // namespace
}  // namespace ddprun::launcher
