#include <gtest/gtest.h>

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "launcher/side_channels/core/health_http.h"
#include "launcher/side_channels/core/timer_table.h"
#include "launcher/side_channels/watchdog.h"
#include "tests/fuzz/fuzz_target.h"

namespace ddprun::launcher {

// The result of one input.
struct SideChannelsFuzzResult {
  bool is_timer_request = false;
  bool is_answered = false;  // as a health check
};

// Reads the bytes as a line of the watchdog's FIFO and as an HTTP request to the health port, and
// aborts when a result is beyond its bounds.
SideChannelsFuzzResult FuzzSideChannels(absl::string_view bytes);

SideChannelsFuzzResult FuzzSideChannels(absl::string_view bytes) {
  SideChannelsFuzzResult result;
  const absl::StatusOr<TimerRequest> request = ParseTimerRequest(bytes);
  result.is_timer_request = request.ok();
  if (request.ok()) {
    DDPRUN_CHECK(bytes.size() <= kTimerLineBytesMax, "a line is bounded");
    DDPRUN_CHECK(request->pid > 0 && request->pid <= INT32_MAX, "a pid is one");
    DDPRUN_CHECK(request->signal >= 0 && request->signal <= 64, "a signal is one");
    DDPRUN_CHECK(request->expiration <= 1.0e12, "a deadline is a time");
    DDPRUN_CHECK(request->scope.size() <= TimerTable::kScopeBytesMax, "a scope is bounded");
  }
  const std::optional<std::string> answer = AnswerHealthRequest(bytes, "{}");
  result.is_answered = answer.has_value();
  if (answer.has_value()) {
    DDPRUN_CHECK(absl::StartsWith(*answer, "HTTP/1.1 "), "an answer is HTTP");
    DDPRUN_CHECK(answer->size() < 512, "an answer fits into a socket's buffer");
  } else {
    DDPRUN_CHECK(bytes.size() < kHttpHeadBytesMax, "nobody sends for ever");
  }
  return result;
}

}  // namespace ddprun::launcher

// A short, seeded run of the fuzzer in every ordinary test run; the long one is
// side_channels_fuzzer.
namespace ddprun::launcher {
namespace {

constexpr char kTimer[] =
    R"({"version": 1, "pid": 4711, "scope_id": "step", "expiration_time": 1.7e9, "signal": 9})";
constexpr char kHttp[] = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n";

TEST(SideChannelsSmoke, DamagedRequestsStayWithinBounds) {
  Rng rng(20240914);
  int timers = 0;
  int answers = 0;
  for (int round = 0; round < 50'000; ++round) {
    std::string bytes = rng.Chance(50) ? kTimer : kHttp;
    for (uint64_t change = rng.Below(4); change > 0; --change) {
      const size_t at = rng.Below(bytes.size());
      if (rng.Chance(60)) {
        bytes[at] = static_cast<char>(rng.Below(256));
      } else if (rng.Chance(50)) {
        bytes.erase(at, rng.Below(8) + 1);
      } else {
        bytes.insert(at, std::string(rng.Below(5000), static_cast<char>(rng.Below(128))));
      }
      if (bytes.empty()) bytes = "x";
    }
    const SideChannelsFuzzResult result = FuzzSideChannels(bytes);
    timers += result.is_timer_request ? 1 : 0;
    answers += result.is_answered ? 1 : 0;
  }
  EXPECT_GT(timers, 1000) << "some must be right";
  EXPECT_GT(answers, 1000);
}

TEST(SideChannelsSmoke, RandomBytes) {
  Rng rng(20240915);
  for (int round = 0; round < 5'000; ++round) {
    std::string bytes(rng.Below(9000), '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng.Below(256));
    EXPECT_FALSE(FuzzSideChannels(bytes).is_timer_request);
  }
}

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) { ddprun::launcher::FuzzSideChannels(bytes); }
