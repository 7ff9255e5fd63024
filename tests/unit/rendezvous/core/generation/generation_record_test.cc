#include "rendezvous/core/generation/generation_record.h"

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

TEST(GenerationRecord, TheCauseTakesThePlaceOfItsConsequence) {
  GenerationRecord record;
  record.Explain("nothing ran yet");
  record.Begin({.generation = Generation(1), .began = Instant()});
  record.Explain("it runs");
  EXPECT_EQ(record.generations().front().end_reason, "");
  record.End(Instant() + absl::Seconds(1), "worker rank 0 exited with code 4");
  record.Explain("worker rank 3 was killed by SIGKILL");
  EXPECT_EQ(record.generations().front().end_reason, "worker rank 3 was killed by SIGKILL");
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

WarmUse Warm(uint32_t warm, uint32_t cold, int64_t saved_ms) {
  return {.warm_workers = warm, .cold_workers = cold, .saved = absl::Milliseconds(saved_ms)};
}

TEST(GenerationRecord, SumsUpHowItsNodesBegan) {
  GenerationRecord record;
  record.SawWarm(0, Warm(1, 0, 10));  // nothing runs
  record.Begin({.generation = Generation(1)});
  record.SawWarm(0, Warm(0, 0, 0));  // not started yet
  EXPECT_FALSE(record.generations().back().warm.has_value());
  record.SawWarm(0, Warm(0, 4, 0));
  record.SawWarm(1, Warm(3, 1, 1800));
  record.SawWarm(0, Warm(4, 0, 900));  // more is known of it now
  const auto warm = [&] { return *record.generations().back().warm; };
  EXPECT_EQ(warm(), (WarmStart{7, 1, absl::Milliseconds(1800)}));
  record.SawWarm(1, Warm(3, 1, 100));  // that was of the generation before
  EXPECT_EQ(warm(), (WarmStart{7, 1, absl::Milliseconds(900)}));
  record.End(Instant(), "a crash");
  record.SawWarm(1, Warm(0, 4, 0));
  EXPECT_EQ(warm(), (WarmStart{7, 1, absl::Milliseconds(900)}));
  record.Begin({.generation = Generation(2)});
  EXPECT_FALSE(record.generations().back().warm.has_value());
}

TEST(GenerationRecord, AfterARecoveryNodesTellTheirStartsAnew) {
  GenerationRecord before;
  before.Begin({.generation = Generation(1)});
  before.SawWarm(0, Warm(2, 0, 700));
  GenerationRecord record;
  record.Recover(Instant(), before.ToRecord(Instant()), 0);
  EXPECT_EQ(record.generations().back().warm, (WarmStart{2, 0, absl::Milliseconds(700)}));
  record.SawWarm(0, Warm(2, 0, 700));
  EXPECT_EQ(record.generations().back().warm, (WarmStart{2, 0, absl::Milliseconds(700)}));
}

TEST(GenerationRecord, WhatAStopStepSavedIsNotDoneOnceMore) {
  GenerationRecord record;
  record.Begin({.generation = Generation(1)});
  for (const uint64_t step : {8U, 7U}) record.SawStep(step);
  EXPECT_EQ(record.begun_step(), 8U);
  record.StoppedAt(9);
  EXPECT_EQ(record.begun_step(), 8U) << "they did not get there";
  record.StoppedAt(8);
  EXPECT_EQ(record.begun_step(), 7U) << "step 8 was marked and saved, and is still to be done";
  EXPECT_DEATH(record.StoppedAt(0), "begin with 1");
}

TEST(GenerationRecord, NoneIsLeftOut) {
  GenerationRecord record;
  record.Begin({.generation = Generation(1)});
  record.End(Instant(), "a crash");
  EXPECT_DEATH(record.Begin({.generation = Generation(3)}), "left out");
  record.Begin({.generation = Generation(2)});
  EXPECT_EQ(record.BrokenInvariant(), "");
}

TEST(GenerationRecord, TheCheckSeesWhatIsBroken) {
  GenerationRecord record;
  record.Begin({.generation = Generation(1)});
  record.Begin({.generation = Generation(2)});
  EXPECT_EQ(record.BrokenInvariant(), "a generation that goes on beside the next one");
  GenerationRecord steps;
  steps.Begin({.generation = Generation(1), .first_step = 7, .last_step = 6});
  EXPECT_EQ(steps.BrokenInvariant(), "steps that go back");
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
