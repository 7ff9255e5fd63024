#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "tests/fuzz/side_channels_fuzz.h"

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
