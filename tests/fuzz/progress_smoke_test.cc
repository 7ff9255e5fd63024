#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"
#include "tests/fuzz/progress_fuzz.h"
#include "tests/support/inputs.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is progress_fuzzer.
namespace ddprun::launcher {
namespace {

TEST(ProgressSmoke, WorkersStoreWhatTheyLike) {
  uint64_t reports = 0;
  uint64_t suspects = 0;
  const auto inputs = Inputs<uint64_t>(3000);
  for (uint64_t seed = 0; seed < inputs; ++seed) {
    Rng rng(seed);
    std::vector<uint8_t> bytes(100 + rng.Below(2000));
    const uint64_t bound = rng.Chance(50) ? 200 : 256;
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Below(bound));
    const ProgressFuzzResult result = FuzzProgress(bytes.data(), bytes.size());
    ASSERT_EQ(result.problem, "") << "seed " << seed;
    reports += result.reports;
    suspects += result.suspects;
  }
  // The events got somewhere.
  EXPECT_GT(reports, inputs / 3);
  EXPECT_GT(suspects, inputs / 10);
}

TEST(ProgressSmoke, TheEmptyInput) { EXPECT_EQ(FuzzProgress(nullptr, 0).problem, ""); }

}  // namespace
}  // namespace ddprun::launcher
