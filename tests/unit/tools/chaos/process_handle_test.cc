#include "tools/chaos/agent_process.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <climits>
#include <utility>

namespace ddprun::launcher {
namespace {

TEST(ProcessHandle, ReachesTheProcess) {
  absl::StatusOr<ProcessHandle> handle = ProcessHandle::Open(getpid());
  ASSERT_TRUE(handle.ok()) << handle.status();
  EXPECT_EQ(handle->pid(), getpid());
  EXPECT_TRUE(handle->Signal(0).ok());
  const ProcessHandle moved = *std::move(handle);
  EXPECT_TRUE(moved.valid());
  EXPECT_FALSE(ProcessHandle().valid());
}

TEST(ProcessHandle, ThereIsNoSuchProcess) {
  EXPECT_EQ(ProcessHandle::Open(INT_MAX).status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ddprun::launcher
