#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"
#include "tests/fuzz/supervisor_fuzz.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is supervisor_fuzzer.
namespace ddprun::launcher {
namespace {

TEST(SupervisorSmoke, InvariantsHoldUnderRandomEvents) {
  SupervisorFuzzResult sum;
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    Rng rng(seed);
    std::vector<uint8_t> bytes(100 + rng.Below(2000));
    // Half of the inputs stay below the values that make an event wild.
    const uint64_t bound = rng.Chance(50) ? 240 : 256;
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Below(bound));
    const SupervisorFuzzResult result = FuzzSupervisor(bytes.data(), bytes.size());
    ASSERT_EQ(result.problem, "") << "seed " << seed;
    sum.spawned += result.spawned;
    sum.kept += result.kept;
    sum.done += result.done;
    sum.verdicts += result.verdicts;
  }
  // The events got somewhere.
  EXPECT_GT(sum.spawned, 4000u);
  EXPECT_GT(sum.kept, 40u);
  EXPECT_GT(sum.done, 400u);
  EXPECT_GT(sum.verdicts, 400u);
}

TEST(SupervisorSmoke, TheEmptyInput) { EXPECT_EQ(FuzzSupervisor(nullptr, 0).problem, ""); }

}  // namespace
}  // namespace ddprun::launcher
