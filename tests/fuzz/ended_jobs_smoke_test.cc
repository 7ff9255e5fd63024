#include <gtest/gtest.h>

#include <string>

#include "base/rng.h"
#include "launcher/os/ended_jobs.h"
#include "tests/fuzz/ended_jobs_fuzz.h"
#include "tests/support/inputs.h"

// A short, seeded run of the fuzzer in every ordinary test run; the long one is ended_jobs_fuzzer.
namespace ddprun::launcher {
namespace {

constexpr uint64_t kSeed = 20261129;
const int kRounds = Inputs(20'000);

TEST(EndedJobsSmokeTest, AnyBytesHaveAnAnswer) {
  Rng rng(kSeed);
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes(rng.Below(60), '\0');
    for (char& byte : bytes) byte = static_cast<char>(rng.Below(256));
    FuzzEndedJob(bytes);
  }
}

TEST(EndedJobsSmokeTest, DamagedRecordsHaveAnAnswer) {
  Rng rng(kSeed);
  const std::string whole = FormatEndedJob({.run_id = "job7",
                                            .description = "train.py (1 node)",
                                            .outcome = "failed",
                                            .status = 1,
                                            .reason = "worker rank 0 exited with code 1",
                                            .began_ms = 1'795'949'447'635,
                                            .ended_ms = 1'795'949'447'670});
  EXPECT_TRUE(FuzzEndedJob(whole));
  int records = 0;
  for (int round = 0; round < kRounds; ++round) {
    std::string bytes = whole;
    if (rng.Chance(20)) bytes.resize(rng.Below(whole.size() + 1));
    if (!bytes.empty()) bytes[rng.Below(bytes.size())] = static_cast<char>(rng.Below(256));
    if (FuzzEndedJob(bytes)) ++records;
  }
  EXPECT_GT(records, kRounds / 20);
  EXPECT_LT(records, kRounds * 3 / 4);
}

// Brackets in brackets are no way to the end of the stack.
TEST(EndedJobsSmokeTest, DeepNestingHasAnAnswer) {
  EXPECT_FALSE(FuzzEndedJob(std::string(1 << 16, '[')));
  EXPECT_FALSE(FuzzEndedJob(std::string(1 << 15, '[') + std::string(1 << 15, ']')));
}

}  // namespace
}  // namespace ddprun::launcher
