#include "worker/torch/session/saver.h"

#include <gtest/gtest.h>

#include <cstdint>

namespace ddprun::worker {
namespace {

// Trains until rank 0's clock says that a checkpoint is due.
struct Course {
  int64_t steps = 0;
  int64_t questions = 0;
  Instant saved;
};

template <typename StepTime>
Course TrainUntilDue(SaveClock clock, StepTime&& step_time) {
  Course run;
  clock.Restart(Instant());
  while (true) {
    run.saved = run.saved + step_time(run.steps++);
    if (!clock.StepIsDone()) continue;
    ++run.questions;
    const int64_t wait = clock.StepsToWait(run.saved);
    if (wait == 0) return run;
    clock.TakeAnswer(wait);
  }
}

TEST(SaveClock, IsDueAfterTheFirstStepPastTheInterval) {
  const Course run = TrainUntilDue(SaveClock(absl::Minutes(1)),
                                   [](int64_t /*step*/) { return absl::Milliseconds(7); });
  EXPECT_EQ(run.steps, 8572);  // 60 s / 7 ms = 8571.4
  // The time that is left halves with each question, from 60 s to 7 ms: 14 of them; and the cap of
  // 1000 steps makes some 8 of the first ones.
  EXPECT_LE(run.questions, 24);
}

TEST(SaveClock, LongStepsAreNoReasonToWaitForMore) {
  const Course run = TrainUntilDue(SaveClock(absl::Minutes(1)),
                                   [](int64_t /*step*/) { return absl::Seconds(50); });
  EXPECT_EQ(run.steps, 2);
}

// 1 ms each, and after a while ten times that: a thousand of them at most come unasked.
TEST(SaveClock, StepsThatBecomeLongerDelayItByAThousandOfThemAtMost) {
  const auto step_time = [](int64_t step) { return absl::Milliseconds(step < 100 ? 1 : 10); };
  const Course run = TrainUntilDue(SaveClock(absl::Minutes(1)), step_time);
  EXPECT_LE(run.saved, Instant() + absl::Seconds(70));
}

TEST(SaveClock, WithoutAnIntervalNobodyIsAsked) {
  SaveClock clock;
  clock.Restart(Instant());
  for (int i = 0; i < 1000; ++i) EXPECT_FALSE(clock.StepIsDone());
}

TEST(SaveClock, ACheckpointForAnotherReasonBeginsTheIntervalAnew) {
  SaveClock clock(absl::Minutes(1));
  clock.Restart(Instant());
  EXPECT_TRUE(clock.StepIsDone());
  clock.Restart(Instant() + absl::Seconds(59));
  EXPECT_TRUE(clock.StepIsDone());
  EXPECT_GT(clock.StepsToWait(Instant() + absl::Seconds(61)), 0);
  EXPECT_EQ(clock.StepsToWait(Instant() + absl::Seconds(119)), 0);
}

TEST(Saver, WithoutACheckpointerNothingIsSaved) {
  const TrainingOptions options;
  const Saver saver(options);
  EXPECT_FALSE(saver.Saves({.step = 3}, std::nullopt));
  EXPECT_FALSE(saver.Saves({.step = 3}, 0.5));
}

TEST(Saver, TheOwnFolderLacksACheckpointUntilTheFirstStepIsSaved) {
  const TrainingOptions options;
  Saver saver(options);
  EXPECT_TRUE(saver.HasNone(0));
  EXPECT_FALSE(saver.HasNone(1));
  saver.BeganElsewhere();
  EXPECT_TRUE(saver.HasNone(20));
  EXPECT_FALSE(saver.HasNone(20)) << "it was asked before, and saved";
}

}  // namespace
}  // namespace ddprun::worker
