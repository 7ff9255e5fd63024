#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "base/rng.h"
#include "base/text.h"
#include "launcher/os/ended_jobs.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/support/inputs.h"

namespace ddprun::launcher {

// Reads `bytes` as the record of an ended job and aborts when that breaks a promise: a record has a
// name, an outcome and times that can be printed, and what is written of it can be read again.
// Returns true when the bytes were a record; for tests that want some to be.
bool FuzzEndedJob(absl::string_view bytes);

bool FuzzEndedJob(absl::string_view bytes) {
  const std::optional<EndedJob> job = ParseEndedJob(bytes);
  if (!job.has_value()) return false;
  DDPRUN_CHECK(!job->run_id.empty() && !job->outcome.empty(), "a record without a name");
  DDPRUN_CHECK(job->began_ms >= 0 && job->ended_ms >= 0, "a time before 1970");
  DDPRUN_CHECK(IsUtf8(job->reason), "a text that can't be printed");
  const std::optional<EndedJob> again = ParseEndedJob(FormatEndedJob(*job));
  DDPRUN_CHECK(again.has_value(), "the record's own form is no record");
  DDPRUN_CHECK(again->ended_ms == job->ended_ms && again->status == job->status,
               "the record's own form says something else");
  return true;
}

}  // namespace ddprun::launcher

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

DDPRUN_FUZZER(bytes) { ddprun::launcher::FuzzEndedJob(bytes); }
