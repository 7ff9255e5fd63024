#include <gtest/gtest.h>

#include <iostream>
#include <vector>

#include "base/rng.h"
#include "tests/fuzz/core_events_fuzz.h"
#include "tests/support/inputs.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is core_events_fuzzer.
// With DDPRUN_TRACE_DIGEST=1 a digest of all steps is printed.
namespace ddprun::rendezvous {
namespace {

TEST(CoreEventsSmoke, InvariantsHoldUnderRandomEvents) {
  uint64_t generations = 0;
  testing::TraceDigest digest;
  testing::TraceDigest* const wanted = testing::DigestWanted() ? &digest : nullptr;
  const auto inputs = Inputs<uint64_t>(4000);
  for (uint64_t seed = 0; seed < inputs; ++seed) {
    Rng rng(seed);
    std::vector<uint8_t> bytes(100 + rng.Below(2000));
    // Half of the inputs stay below the values that make a message wild.
    const uint64_t bound = rng.Chance(50) ? 240 : 256;
    for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(rng.Below(bound));
    SCOPED_TRACE(seed);
    generations += FuzzCoreEvents(bytes.data(), bytes.size(), wanted);
  }
  if (wanted != nullptr) {
    std::cout << "digest of " << digest.lines() << " lines: " << std::hex << digest.value()
              << std::dec << "\n";
  }
  EXPECT_GT(generations, inputs) << "the events must get somewhere";
}

TEST(CoreEventsSmoke, TheEmptyInput) { EXPECT_EQ(FuzzCoreEvents(nullptr, 0), 0u); }

}  // namespace
}  // namespace ddprun::rendezvous
