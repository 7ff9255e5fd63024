#include "rendezvous/core/generation_record.h"

#include <gtest/gtest.h>

#include "rendezvous/core/bounds.h"

namespace ddprun::rendezvous {
namespace {

TEST(GenerationRecord, TheFirstReasonForTheEndStands) {
  GenerationRecord record;
  record.End(Instant(), "nothing runs yet");
  record.Begin({.generation = Generation(1), .began = Instant()});
  record.End(Instant() + absl::Seconds(1), "node b was lost");
  record.End(Instant() + absl::Seconds(2), "stopped on request");
  EXPECT_EQ(record.generations().front().end_reason, "node b was lost");
  EXPECT_EQ(record.generations().front().ended, Instant() + absl::Seconds(1));
}

TEST(GenerationRecord, KeepsTheFirstAndTheLastStep) {
  GenerationRecord record;
  record.SawStep(3);  // nothing runs
  record.Begin({.generation = Generation(1)});
  EXPECT_FALSE(record.generations().back().last_step.has_value());
  for (const uint64_t step : {7U, 5U, 9U}) record.SawStep(step);
  EXPECT_EQ(record.generations().back().first_step, 5U);
  EXPECT_EQ(record.generations().back().last_step, 9U);
}

TEST(GenerationRecord, OnlyTheLastOnesAreKept) {
  GenerationRecord record;
  for (uint64_t i = 1; i <= kGenerationsRecordedMax + 2; ++i) {
    record.Begin({.generation = Generation(i)});
  }
  EXPECT_EQ(record.generations().size(), kGenerationsRecordedMax);
  EXPECT_EQ(record.generations().front().generation, Generation(3));
}

}  // namespace
}  // namespace ddprun::rendezvous
