#include "worker/torch/session/training_course.h"

#include <gtest/gtest.h>

namespace ddprun::worker {
namespace {

using Next = TrainingCourse::Next;

// Two epochs of two steps with two samples each.
class TrainingCourseTest : public ::testing::Test {
 protected:
  void Step() {
    course_.StepIsDone(/*generation=*/3);
    place_.consumed += 2;
    const bool is_last = place_.consumed == 4;
    if (is_last) place_ = {.epoch = place_.epoch + 1, .consumed = 0};
    course_.Consume(place_, is_last);
  }
  void Evaluate() {
    ASSERT_EQ(course_.next(), Next::kEvaluation);
    course_.EvaluationIsDone();
    course_.EvaluationIsOver();
  }
  int64_t Marks() const { return course_.version()->marks; }

  TrainingOptions options_ = {.epochs = 2};
  TrainingCourse course_{options_};
  SamplerState place_;
};

TEST_F(TrainingCourseTest, AnEvaluationFollowsEachEpochButTheLast) {
  EXPECT_EQ(course_.next(), Next::kStep);
  Step();
  EXPECT_EQ(course_.next(), Next::kStep);
  Step();
  Evaluate();
  EXPECT_EQ(course_.next(), Next::kStep);
  Step();
  Step();
  EXPECT_EQ(course_.next(), Next::kEnd) << "which makes the last evaluation";
  EXPECT_EQ(course_.progress(), (TrainingProgress{.step = 4, .epoch = 2, .epoch_samples = 0}));
}

TEST_F(TrainingCourseTest, OptionsMayCountSteps) {
  options_ = {.steps = 3, .evaluate_every = 2};
  Step();
  EXPECT_EQ(course_.next(), Next::kStep);
  Step();
  Evaluate();
  Step();
  EXPECT_EQ(course_.next(), Next::kEnd);
}

TEST_F(TrainingCourseTest, TheProgramMayEndTheTraining) {
  course_.HasState(3);
  Step();
  EXPECT_EQ(Marks(), 0);
  course_.marks().is_finished = true;
  EXPECT_EQ(course_.next(), Next::kEnd);
  EXPECT_EQ(Marks(), TrainingCourse::kFinished);
}

TEST_F(TrainingCourseTest, ARankWithoutAStateHasNoVersion) {
  EXPECT_FALSE(course_.version().has_value());
  course_.HasState(2);
  EXPECT_EQ(*course_.version(), StateVersion{.generation = 2});
  Step();
  EXPECT_EQ(*course_.version(),
            (StateVersion{.progress = course_.progress(), .generation = 3, .marks = 0}));
}

// Own states, which an evaluation may change: the version says whether it has.
TEST_F(TrainingCourseTest, AnEvaluationIsAnotherVersionOfOwnStates) {
  course_.KeepOwnStates();
  Step();
  EXPECT_EQ(Marks(), TrainingCourse::kEvaluated) << "there was none to miss";
  Step();
  EXPECT_EQ(Marks(), 0);
  EXPECT_FALSE(course_.IsEvaluatedForGood());
  Evaluate();
  EXPECT_EQ(Marks(), TrainingCourse::kEvaluated);
  EXPECT_TRUE(course_.IsEvaluatedForGood());
}

// Ranks that go on after a fault make an evaluation again only if its result is lost.
TEST_F(TrainingCourseTest, AGenerationBeginsWithTheEvaluationThatIsMissing) {
  Step();
  course_.BeginGeneration(/*is_evaluated=*/false);
  EXPECT_EQ(course_.next(), Next::kStep) << "in the middle of an epoch";
  Step();
  course_.BeginGeneration(/*is_evaluated=*/true);
  EXPECT_EQ(course_.next(), Next::kStep) << "other ranks have done it";
  course_.BeginGeneration(/*is_evaluated=*/false);
  EXPECT_EQ(course_.next(), Next::kEvaluation);
  course_.KeepOwnStates();
  course_.BeginGeneration(/*is_evaluated=*/true);
  EXPECT_EQ(course_.next(), Next::kEvaluation) << "this rank's state is from before it";
  Evaluate();
  course_.BeginGeneration(/*is_evaluated=*/false);
  EXPECT_EQ(course_.next(), Next::kStep);
}

TEST_F(TrainingCourseTest, KnowsWhatFollowsAStateOfOtherRanks) {
  const StateVersion in_epoch = {.progress = {.step = 1, .epoch = 0, .epoch_samples = 2}};
  const StateVersion after_epoch = {.progress = {.step = 2, .epoch = 1, .epoch_samples = 0}};
  const StateVersion at_end = {.progress = {.step = 4, .epoch = 2, .epoch_samples = 0}};
  EXPECT_TRUE(course_.StepFollows(in_epoch, /*is_evaluated=*/false));
  EXPECT_FALSE(course_.StepFollows(after_epoch, /*is_evaluated=*/false));
  EXPECT_TRUE(course_.StepFollows(after_epoch, /*is_evaluated=*/true));
  EXPECT_FALSE(course_.StepFollows(at_end, /*is_evaluated=*/true));
  StateVersion finished = in_epoch;
  finished.marks = TrainingCourse::kFinished;
  EXPECT_FALSE(course_.StepFollows(finished, /*is_evaluated=*/true));
}

}  // namespace
}  // namespace ddprun::worker
