#include "launcher/os/tool_output.h"

#include <gtest/gtest.h>

namespace ddprun::launcher {
namespace {

TEST(ToolOutput, IsWhatItWrites) {
  const auto output =
      ToolOutput({"/bin/sh", "-c", "echo one; echo error >&2; echo two"}, absl::Seconds(10));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_EQ(*output, "one\ntwo\n");
}

TEST(ToolOutput, IsBounded) {
  const auto output = ToolOutput({"/bin/sh", "-c", "head -c 1000000 /dev/zero"}, absl::Seconds(10));
  ASSERT_TRUE(output.ok()) << output.status();
  EXPECT_GE(output->size(), 64U << 10);
  EXPECT_LT(output->size(), 80U << 10);
}

TEST(ToolOutput, Fails) {
  EXPECT_EQ(ToolOutput({"/bin/false"}, absl::Seconds(10)).status().code(),
            absl::StatusCode::kAborted);
  EXPECT_EQ(ToolOutput({"/nonexistent/tool"}, absl::Seconds(10)).status().code(),
            absl::StatusCode::kNotFound);
}

TEST(ToolOutput, IsNotWaitedForLongerThanTheLimit) {
  const absl::Duration limit = absl::Milliseconds(20);
  // Silent, and with its output closed.
  for (const char* script : {"exec tail -f /dev/null", "exec >/dev/null; exec tail -f /dev/null"}) {
    EXPECT_EQ(ToolOutput({"/bin/sh", "-c", script}, limit).status().code(),
              absl::StatusCode::kDeadlineExceeded)
        << script;
  }
}

}  // namespace
}  // namespace ddprun::launcher
