#include "launcher/side_channels/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"

namespace ddprun::launcher {
namespace {

TEST(TimerRequest, ReadsWhatTorchWrites) {
  const auto request = ParseTimerRequest(R"({"version": 1, "pid": 4711, "scope_id": "a \u00e9", )"
                                         R"("expiration_time": 1700000000.25, "signal": 15})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_EQ(request->pid, 4711U);
  EXPECT_EQ(request->scope, "a é");
  EXPECT_EQ(request->expiration, 1700000000.25);
  EXPECT_EQ(request->signal, 15);
  EXPECT_FALSE(request->is_release());
}

TEST(TimerRequest, SignalAndVersionMayBeMissingAndNegativesMeanRelease) {
  const auto request = ParseTimerRequest(R"({"pid":1,"scope_id":"","expiration_time":-1})");
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(request->is_release());
  EXPECT_EQ(request->signal, 9);
  EXPECT_EQ(ParseTimerRequest(R"({"pid":1,"scope_id":"","expiration_time":1,"signal":-3})")->signal,
            0);
}

TEST(TimerRequest, RefusesAllElse) {
  const std::string kWrong[] = {
      "",
      "[]",
      "{",
      "null",
      R"({"pid":0,"scope_id":"","expiration_time":1})",
      R"({"pid":-4,"scope_id":"","expiration_time":1})",
      R"({"pid":4294967296,"scope_id":"","expiration_time":1})",
      R"({"pid":1.5,"scope_id":"","expiration_time":1})",
      R"({"pid":1,"scope_id":7,"expiration_time":1})",
      R"({"pid":1,"scope_id":"","expiration_time":"1"})",
      R"({"pid":1,"scope_id":"","expiration_time":1e999})",
      R"({"pid":1,"scope_id":"","expiration_time":1e13})",
      R"({"pid":1,"scope_id":"","expiration_time":1,"signal":65})",
      R"({"pid":1,"scope_id":"","expiration_time":1,"signal":"9"})",
      R"({"version":2,"pid":1,"scope_id":"","expiration_time":1})",
      R"({"pid":1,"expiration_time":1})",
      absl::StrCat(R"({"pid":1,"expiration_time":1,"scope_id":")", std::string(1025, 'x'), "\"}"),
      std::string(kTimerLineBytesMax + 1, ' '),
      std::string(kTimerLineBytesMax, '['),
  };
  for (const std::string& line : kWrong) {
    EXPECT_FALSE(ParseTimerRequest(line).ok()) << line.substr(0, 80);
  }
}

}  // namespace
}  // namespace ddprun::launcher
