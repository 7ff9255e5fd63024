#include "worker/torch/session/call_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddprun::worker {
namespace {

using Place = CallOrder::Place;
using ::testing::HasSubstr;

CallOrder InBatch(size_t parts) {
  CallOrder calls;
  calls.Prepare(parts);
  calls.OpenBatch();
  return calls;
}

TEST(CallOrder, ABatchIsForwardBackwardStep) {
  CallOrder calls;
  EXPECT_THAT(calls.CheckAdvance(0).message(), HasSubstr("before Prepare()"));
  EXPECT_FALSE(calls.is_prepared());
  calls.Prepare(1);
  for (int batch = 0; batch < 2; ++batch) {
    EXPECT_TRUE(calls.CheckAdvance(0).ok());
    calls.OpenBatch();
    EXPECT_THAT(calls.CheckAdvance(4).message(),
                HasSubstr("a batch of step 5 got no Backward() and Step()"));
    EXPECT_TRUE(calls.NoteForward(0, /*is_graded=*/true));
    EXPECT_TRUE(calls.CheckBackward(std::nullopt).ok());
    calls.NoteBackward(std::nullopt);
    EXPECT_THAT(calls.CheckAdvance(4).message(), HasSubstr("a batch of step 5 got no Step()"));
    EXPECT_TRUE(calls.CheckStep().ok());
    calls.CloseBatch();
  }
  calls.End();
  EXPECT_TRUE(calls.CheckAdvance(5).ok());
  EXPECT_EQ(calls.place(), Place::kEnded);
}

TEST(CallOrder, NamesTheForwardPassThatIsMissing) {
  CallOrder calls = InBatch(1);
  EXPECT_THAT(calls.CheckBackward(std::nullopt).message(), HasSubstr("had no part in"));
  EXPECT_FALSE(calls.NoteForward(0, /*is_graded=*/false));
  EXPECT_THAT(calls.CheckBackward(std::nullopt).message(), HasSubstr("torch::NoGradGuard"));
  calls.NoteForward(0, /*is_graded=*/true);
  EXPECT_TRUE(calls.CheckBackward(std::nullopt).ok());
  // Calls in the batch before don't count.
  calls.CloseBatch();
  EXPECT_THAT(calls.CheckBackward(std::nullopt).message(), HasSubstr("without a batch"));
  calls.OpenBatch();
  EXPECT_FALSE(calls.CheckBackward(std::nullopt).ok());
}

TEST(CallOrder, RefusesASecondBackwardAndASecondStep) {
  CallOrder calls = InBatch(1);
  EXPECT_THAT(calls.CheckStep().message(), HasSubstr("Step() before Backward()"));
  EXPECT_TRUE(calls.CheckStepWithFunction().ok());
  calls.NoteForward(0, /*is_graded=*/true);
  calls.NoteBackward(std::nullopt);
  EXPECT_THAT(calls.CheckBackward(std::nullopt).message(), HasSubstr("called twice"));
  EXPECT_FALSE(calls.NoteForward(0, /*is_graded=*/true)) << "not of training";
  EXPECT_THAT(calls.CheckStepWithFunction().message(), HasSubstr("after Backward()"));
  calls.CloseBatch();
  EXPECT_THAT(calls.CheckStep().message(), HasSubstr("was it called twice?"));
}

// A GAN: the critic's pass and step, then the generator's, then the batch's end.
TEST(CallOrder, EachOfSeveralModulesHasAPassAndAStep) {
  CallOrder calls = InBatch(2);
  EXPECT_THAT(calls.CheckStepOf(1, "critic").message(), HasSubstr("Step() of 'critic' before"));
  EXPECT_FALSE(calls.CheckStep().ok());
  for (const size_t part : {1, 0}) {
    EXPECT_TRUE(calls.NoteForward(part, /*is_graded=*/true));
    EXPECT_TRUE(calls.CheckBackward(part).ok());
    calls.NoteBackward(part);
    EXPECT_FALSE(calls.CheckBackward(part).ok());
    EXPECT_TRUE(calls.CheckStepOf(part, "").ok());
    calls.NoteStepOf(part);
    EXPECT_EQ(calls.place(), Place::kBatch);
    EXPECT_FALSE(calls.CheckStepOf(part, "").ok()) << "it has no gradients any more";
  }
  EXPECT_TRUE(calls.CheckStep().ok());
}

TEST(CallOrder, BothPassesMayComeBeforeTheSteps) {
  CallOrder calls = InBatch(2);
  calls.NoteForward(0, /*is_graded=*/true);
  calls.NoteBackward(0);
  EXPECT_TRUE(calls.NoteForward(1, /*is_graded=*/true));
  EXPECT_TRUE(calls.CheckBackward(1).ok());
  calls.NoteBackward(1);
  calls.NoteStepOf(0);
  EXPECT_EQ(calls.place(), Place::kBackwardDone) << "the other one's gradients wait";
  EXPECT_TRUE(calls.CheckStepOf(1, "").ok());
}

TEST(CallOrder, SavesBetweenSteps) {
  CallOrder calls;
  EXPECT_THAT(calls.CheckSave(/*step_is_over=*/true).message(), HasSubstr("before Prepare()"));
  calls.Prepare(1);
  EXPECT_TRUE(calls.CheckSave(/*step_is_over=*/true).ok());
  EXPECT_THAT(calls.CheckSave(/*step_is_over=*/false).message(), HasSubstr("middle of a step"));
  calls.OpenBatch();  // the step's last one
  EXPECT_FALSE(calls.CheckSave(/*step_is_over=*/true).ok());
  calls.NoteBackward(std::nullopt);
  EXPECT_FALSE(calls.CheckSave(/*step_is_over=*/true).ok());
  calls.CloseBatch();
  calls.End();
  EXPECT_TRUE(calls.CheckSave(/*step_is_over=*/true).ok());
}

}  // namespace
}  // namespace ddprun::worker
