#include "worker/torch/session/session_step.h"

#include <gtest/gtest.h>
#include <torch/nn/modules.h>
#include <torch/utils.h>

namespace ddprun::worker {
namespace {

// One module with a buffer, and a state of the program's own.
class StepStartTest : public ::testing::Test {
 protected:
  void SetUp() override {
    SessionPart part;
    part.module = norm_.ptr();
    part.kind = Sgd();
    ASSERT_TRUE(trained_.Add(std::move(part)).ok());
    ASSERT_TRUE(trained_.Assemble().ok());
    ASSERT_TRUE(trained_.Plan({.peak = 0.5}).ok());
    ASSERT_TRUE(trained_.Begin(torch::kCPU).ok());
    ASSERT_TRUE(own_.Add("count", OwnState(count_)).ok());
  }
  ReplicatedState State() const {
    return {.module = *trained_.module(), .optimizer = *trained_.optimizer(), .extras = {}};
  }
  void ChangeAll() {
    const torch::NoGradGuard no_grad;
    norm_->running_mean.fill_(9);
    norm_->weight.fill_(9);
    count_ = 9;
    course_.marks().is_finished = true;
  }
  double Mean() { return norm_->running_mean[0].item<double>(); }
  double Weight() { return norm_->weight[0].item<double>(); }

  int64_t count_ = 1;
  torch::nn::BatchNorm1d norm_{2};
  TrainingOptions options_;
  TrainedModel trained_{options_};
  OwnStates own_;
  TrainingCourse course_{options_};
};

TEST_F(StepStartTest, PutsBackWhatPassesChange) {
  const StepStart start(trained_, own_, course_);
  ChangeAll();
  ASSERT_TRUE(start.PutBack(State()).ok());
  EXPECT_EQ(Mean(), 0);
  EXPECT_EQ(count_, 1);
  EXPECT_FALSE(course_.marks().is_finished);
  EXPECT_EQ(Weight(), 9) << "only optimizers change it, after the last collective";
}

TEST_F(StepStartTest, PutsBackWhatAnEarlyUpdateHasChanged) {
  StepStart start(trained_, own_, course_);
  ASSERT_TRUE(start.KeepBeforeUpdate(State()).ok());
  ChangeAll();
  ASSERT_TRUE(start.KeepBeforeUpdate(State()).ok());  // of a second module
  ASSERT_TRUE(start.PutBack(State()).ok());
  EXPECT_EQ(Weight(), 1);
}

TEST_F(StepStartTest, AStepThatWasDoneStays) {
  const StepStart start(trained_, own_, course_);
  ChangeAll();
  course_.StepIsDone(/*generation=*/1);
  ASSERT_TRUE(start.PutBack(State()).ok());
  EXPECT_EQ(Mean(), 9);
  EXPECT_EQ(count_, 9);
}

TEST(CurrentStepTest, ItsLossIsThatOfTheSamplesThatCount) {
  CurrentStep step;
  step.pass.share = 0;
  step.AddLoss(torch::full({}, 5.0));
  EXPECT_FALSE(step.metrics.loss.defined());
  step.pass.share = 0.25;
  step.AddLoss(torch::full({}, 4.0));
  step.pass.share = 0.75;
  step.AddLoss(torch::full({}, 8.0));
  EXPECT_EQ(step.metrics.loss.item<double>(), 7);
}

}  // namespace
}  // namespace ddprun::worker
