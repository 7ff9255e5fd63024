#include "worker/torch/session/trained_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules.h>

#include <cmath>

#include "ddprun/any_optimizer.h"

namespace ddprun::worker {
namespace {

using ::testing::HasSubstr;

SessionPart Part(const std::string& name, OptimizerKind kind = Sgd()) {
  SessionPart part;
  part.name = name;
  part.module = torch::nn::Linear(2, 1).ptr();
  part.kind = std::move(kind);
  return part;
}

double RateOf(const TrainedModel& trained, size_t group) {
  return trained.optimizer()->param_groups()[group].options().get_lr();
}

class TrainedModelTest : public ::testing::Test {
 protected:
  void Begin() {
    ASSERT_TRUE(trained_.Assemble().ok());
    ASSERT_TRUE(trained_.Plan({.peak = 0.5, .warmup_steps = 1}).ok());
    ASSERT_TRUE(trained_.Begin(torch::kCPU).ok());
  }

  TrainingOptions options_;
  TrainedModel trained_{options_};
};

TEST_F(TrainedModelTest, SeveralModulesHaveNames) {
  EXPECT_THAT(trained_.Assemble().message(), HasSubstr("Add() a module before it"));
  EXPECT_THAT(trained_.Add(Part("a.b")).message(), HasSubstr("leave the '.' out"));
  ASSERT_TRUE(trained_.Add(Part("a")).ok());
  EXPECT_THAT(trained_.Add(Part("a")).message(), HasSubstr("a name of its own"));
  EXPECT_THAT(trained_.Add(Part("")).message(), HasSubstr("a name of its own"));
  ASSERT_TRUE(trained_.Add(Part("b")).ok());
  options_.zero_stage = "1";
  EXPECT_THAT(trained_.Assemble().message(), HasSubstr("the session has 2"));
  options_ = {.comm_hook = "power_sgd"};
  EXPECT_THAT(trained_.Assemble().message(), HasSubstr("take another one"));
  options_ = {};
  ASSERT_TRUE(trained_.Assemble().ok());
  EXPECT_EQ(trained_.module()->named_parameters().size(), 4U);
  EXPECT_TRUE(trained_.module()->named_parameters().contains("b.weight"));
}

TEST_F(TrainedModelTest, AGroupKeepsItsShareOfTheRate) {
  SessionPart part = Part("");
  part.groups = {{.parameters = {part.module->parameters()[1]}, .learning_rate_factor = 0.25}};
  ASSERT_TRUE(trained_.Add(std::move(part)).ok());
  Begin();
  EXPECT_EQ(*trained_.SetRates(0), 0.25) << "half of the warm-up";
  EXPECT_EQ(RateOf(trained_, 0), 0.25);
  EXPECT_EQ(RateOf(trained_, 1), 0.0625);
  trained_.LearnWith([](int64_t step) { return step < 7 ? 2.0 : std::nan(""); });
  EXPECT_EQ(*trained_.SetRates(6), 2);
  EXPECT_EQ(RateOf(trained_, 1), 0.5);
  EXPECT_THAT(trained_.SetRates(7).status().message(), HasSubstr("answers nan at step 7"));
  // Another number of workers: the rates are those that the new schedule begins with.
  ASSERT_TRUE(trained_.Plan({.peak = 1}).ok());
  EXPECT_EQ(RateOf(trained_, 0), 1);
  EXPECT_EQ(RateOf(trained_, 1), 0.25);
}

TEST_F(TrainedModelTest, AGroupWithoutParametersIsRefused) {
  SessionPart part = Part("");
  part.groups = {{}};
  ASSERT_TRUE(trained_.Add(std::move(part)).ok());
  ASSERT_TRUE(trained_.Assemble().ok());
  EXPECT_THAT(trained_.Begin(torch::kCPU).message(), HasSubstr("parameter group 0 has 0"));
}

TEST_F(TrainedModelTest, AGroupOfAnotherModulesParametersIsRefused) {
  SessionPart one = Part("one");
  SessionPart other = Part("other");
  one.groups = {{.parameters = {one.module->parameters()[0], other.module->parameters()[1]}}};
  ASSERT_TRUE(trained_.Add(std::move(one)).ok());
  ASSERT_TRUE(trained_.Add(std::move(other)).ok());
  ASSERT_TRUE(trained_.Assemble().ok());
  EXPECT_THAT(trained_.Begin(torch::kCPU).message(),
              HasSubstr("parameter group 0: parameter 1, 'bias' of the module 'other', isn't one"));
  TrainedModel alone(options_);
  SessionPart part = Part("");
  part.groups = {{.parameters = {torch::zeros({3, 2})}}};
  ASSERT_TRUE(alone.Add(std::move(part)).ok());
  ASSERT_TRUE(alone.Assemble().ok());
  EXPECT_THAT(alone.Begin(torch::kCPU).message(), HasSubstr("parameter 0, of the shape [3, 2]"));
}

// Frozen after a training without a Session, as of a backbone. Twin: a gradient that comes later.
TEST_F(TrainedModelTest, AFrozenParameterMayHaveAnOldGradient) {
  SessionPart part = Part("");
  torch::Tensor weight = part.module->parameters()[0];
  weight.sum().backward();
  weight.requires_grad_(false);
  ASSERT_TRUE(trained_.Add(std::move(part)).ok());
  Begin();
  EXPECT_TRUE(trained_.CheckOptimizers(0).ok());
  EXPECT_FALSE(weight.grad().defined());
  weight.mutable_grad() = torch::ones_like(weight);
  EXPECT_THAT(trained_.CheckOptimizers(0).message(), HasSubstr("parameter 'weight' needed no"));
}

TEST_F(TrainedModelTest, OptimizersStepEarlyIfTheyAreSeveralOrOfTheProgram) {
  ASSERT_TRUE(trained_.Add(Part("a")).ok());
  EXPECT_FALSE(trained_.MayStepEarly());
  EXPECT_FALSE(trained_.TakesFunction());
  ASSERT_TRUE(trained_.Add(Part("b")).ok());
  EXPECT_TRUE(trained_.MayStepEarly());
  EXPECT_FALSE(trained_.TakesFunction());
  TrainedModel own(options_);
  ASSERT_TRUE(own.Add(Part("", AnyOptimizer{.name = "Own"})).ok());
  EXPECT_TRUE(own.MayStepEarly());
  EXPECT_TRUE(own.TakesFunction());
}

TEST_F(TrainedModelTest, ItsStatesAreNamedAsInCheckpoints) {
  ASSERT_TRUE(trained_.Add(Part("a")).ok());
  ASSERT_TRUE(trained_.Add(Part("b")).ok());
  Begin();
  std::vector<std::string> names;
  for (const auto& [name, state] : trained_.States()) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"buckets-a", "buckets-b", "scaler"}));
}

}  // namespace
}  // namespace ddprun::worker
