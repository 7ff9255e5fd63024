#include <gtest/gtest.h>

#include <vector>

#include "base/check.h"
#include "base/rng.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/fuzz/supervisor_check.h"
#include "tests/support/inputs.h"

namespace ddprun::launcher {
namespace {

TEST(SupervisorSmoke, InvariantsHoldUnderRandomEvents) {
  SupervisorFuzzResult sum;
  const auto inputs = Inputs<uint64_t>(4000);
  for (uint64_t seed = 0; seed < inputs; ++seed) {
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
  EXPECT_GT(sum.spawned, inputs);
  EXPECT_GT(sum.kept, inputs / 100);
  EXPECT_GT(sum.done, inputs / 10);
  EXPECT_GT(sum.verdicts, inputs / 10);
}

TEST(SupervisorSmoke, TheEmptyInput) { EXPECT_EQ(FuzzSupervisor(nullptr, 0).problem, ""); }

}  // namespace
}  // namespace ddprun::launcher

DDPRUN_FUZZER(bytes) {
  const ddprun::launcher::SupervisorFuzzResult result = ddprun::launcher::FuzzSupervisor(
      reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size());
  DDPRUN_CHECK(result.problem.empty(), result.problem);
}
