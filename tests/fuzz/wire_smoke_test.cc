#include <gtest/gtest.h>
#include <malloc.h>

#include <string>
#include <vector>

#include "base/rng.h"
#include "tests/fuzz/wire_fuzz.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is wire_fuzzer.
namespace ddprun::rendezvous {
namespace {

constexpr uint8_t kStranger = 0;
constexpr uint8_t kMembers = 1;
constexpr uint64_t kInputs = 300;
constexpr size_t kGrowthMost = 8U << 20;

std::vector<uint8_t> Input(uint8_t who, uint64_t seed) {
  Rng rng(seed);
  std::vector<uint8_t> bytes(100 + rng.Below(500));
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Below(256));
  bytes[0] = who;
  return bytes;
}

WireFuzzResult PlayAll(WireFuzz* fuzz, uint8_t who, uint64_t inputs) {
  WireFuzzResult sum;
  for (uint64_t seed = 0; seed < inputs; ++seed) {
    const std::vector<uint8_t> bytes = Input(who, seed);
    const WireFuzzResult result = fuzz->Play(bytes.data(), bytes.size());
    sum.refused += result.refused;
    sum.welcomed += result.welcomed;
    sum.assigned += result.assigned;
    if (result.problem.empty()) continue;
    sum.problem = "seed " + std::to_string(seed) + ": " + result.problem;
    return sum;
  }
  return sum;
}

TEST(WireSmoke, AStrangerChangesNothing) {
  WireFuzz fuzz;
  const WireFuzzResult result = PlayAll(&fuzz, kStranger, kInputs);
  EXPECT_EQ(result.problem, "");
  EXPECT_GT(result.refused, kInputs);
}

// The twin: a service without a token takes a stranger's word, and the target notices.
TEST(WireSmoke, TwinAnOpenServiceIsNoticed) {
  WireFuzz fuzz("");
  EXPECT_NE(PlayAll(&fuzz, kStranger, kInputs).problem, "");
}

TEST(WireSmoke, MembersBreakNothingButTheirs) {
  WireFuzz fuzz;
  const WireFuzzResult result = PlayAll(&fuzz, kMembers, kInputs);
  EXPECT_EQ(result.problem, "");
  // The messages got somewhere.
  EXPECT_GT(result.refused, kInputs / 4);
  EXPECT_GT(result.welcomed, kInputs / 4);
  EXPECT_GT(result.assigned, kInputs / 16);
}

// Under sanitizers nothing is counted.
TEST(WireSmoke, StrangersLeaveNoMemoryBehind) {
  WireFuzz fuzz;
  ASSERT_EQ(PlayAll(&fuzz, kStranger, kInputs).problem, "");
  const size_t before = mallinfo2().uordblks;
  ASSERT_EQ(PlayAll(&fuzz, kStranger, kInputs).problem, "");
  EXPECT_LT(mallinfo2().uordblks, before + kGrowthMost);
}

}  // namespace
}  // namespace ddprun::rendezvous
