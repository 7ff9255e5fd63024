#include "ddprun/learning_rate.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include <memory>
#include <utility>
#include <vector>

namespace ddprun {
namespace {

TEST(LearningRateTest, ScalesWithTheGlobalBatch) {
  EXPECT_DOUBLE_EQ(ScaledLearningRate(0.1, LearningRateScaling::kNone, 256, 8192), 0.1);
  EXPECT_DOUBLE_EQ(ScaledLearningRate(0.1, LearningRateScaling::kLinear, 256, 8192), 3.2);
  EXPECT_DOUBLE_EQ(ScaledLearningRate(0.1, LearningRateScaling::kSquareRoot, 256, 1024), 0.2);
  EXPECT_DOUBLE_EQ(ScaledLearningRate(0.1, LearningRateScaling::kLinear, 256, 128), 0.05);
}

struct ScheduleCase {
  LearningRateSchedule schedule;
  std::vector<std::pair<int64_t, double>> rates;  // by step
};

TEST(LearningRateTest, FollowsItsSchedule) {
  const std::vector<ScheduleCase> cases = {
      {{.peak = 2}, {{0, 2}, {1000000, 2}}},
      {{.peak = 2, .warmup_steps = 3}, {{0, 0.5}, {1, 1}, {2, 1.5}, {3, 2}, {9, 2}}},
      {{.kind = ScheduleKind::kLinear, .peak = 1, .warmup_steps = 1, .total_steps = 11},
       {{0, 0.5}, {1, 1}, {6, 0.5}, {11, 0}, {99, 0}}},
      {{.kind = ScheduleKind::kCosine, .peak = 1, .total_steps = 100, .least = 0.2},
       {{0, 1}, {50, 0.6}, {100, 0.2}, {101, 0.2}}},
      {{.kind = ScheduleKind::kStep, .peak = 1, .step_every = 10, .step_factor = 0.5},
       {{0, 1}, {9, 1}, {10, 0.5}, {25, 0.25}}},
  };
  for (const ScheduleCase& each : cases) {
    EXPECT_TRUE(each.schedule.Check().ok());
    for (const auto& [step, rate] : each.rates) {
      EXPECT_NEAR(each.schedule.At(step), rate, 1e-12) << step;
    }
  }
}

std::vector<double> RatesOf(const torch::optim::Optimizer& optimizer) {
  std::vector<double> rates;
  for (const auto& group : optimizer.param_groups()) rates.push_back(group.options().get_lr());
  return rates;
}

TEST(LearningRateTest, GroupsKeepTheirProportion) {
  std::vector<torch::optim::OptimizerParamGroup> groups;
  for (const double rate : {1e-3, 1e-4, 0.0}) {
    groups.emplace_back(std::vector<torch::Tensor>{torch::ones({1}).requires_grad_()},
                        std::make_unique<torch::optim::SGDOptions>(rate));
  }
  torch::optim::SGD optimizer(groups, torch::optim::SGDOptions(1e-3));
  const GroupLearningRates rates(optimizer);
  for (const ScheduleKind kind : {ScheduleKind::kConstant, ScheduleKind::kLinear,
                                  ScheduleKind::kCosine, ScheduleKind::kStep}) {
    const LearningRateSchedule schedule = {.kind = kind,
                                           .peak = 1e-3,
                                           .warmup_steps = 3,
                                           .total_steps = 20,
                                           .least = 1e-4,
                                           .step_every = 5};
    for (const int64_t step : {0, 2, 3, 11, 20, 99}) {
      rates.Set(optimizer, schedule, step);
      const double first = schedule.At(step);
      EXPECT_EQ(RatesOf(optimizer)[0], first);
      // Each of the two rates is rounded by at most 8 u, in products, quotients and sums of numbers
      // of one sign; the constants 1e-3 and 1e-4 by one more each.
      EXPECT_NEAR(RatesOf(optimizer)[1], first / 10, first * 20 / double{int64_t{1} << 53});
      EXPECT_EQ(RatesOf(optimizer)[2], 0);
    }
  }
  // A training that was restored goes on with the rates of another step.
  SetLearningRate(optimizer, 5);
  EXPECT_EQ(RatesOf(optimizer), (std::vector<double>{5, 5, 5}));
  rates.Set(optimizer, {.peak = 1e-3}, 0);
  EXPECT_EQ(RatesOf(optimizer), (std::vector<double>{1e-3, 1e-4, 0}));
}

TEST(LearningRateTest, RefusesWhatMakesNoSense) {
  for (const LearningRateSchedule& schedule : std::vector<LearningRateSchedule>{
           {.peak = 0},
           {.peak = 1, .least = 2},
           {.peak = 1, .warmup_steps = -1},
           {.kind = ScheduleKind::kCosine, .peak = 1},
           {.kind = ScheduleKind::kLinear, .peak = 1, .warmup_steps = 20, .total_steps = 10},
           {.kind = ScheduleKind::kStep, .peak = 1, .step_every = 0}}) {
    EXPECT_EQ(schedule.Check().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(LearningRateTest, NamesTheWordsThatItKnows) {
  EXPECT_EQ(*ParseScheduleKind("cosine"), ScheduleKind::kCosine);
  EXPECT_EQ(ParseScheduleKind("cosin").status().message(),
            "schedule 'cosin' is none of constant, linear, cosine, step");
  EXPECT_EQ(*ParseLearningRateScaling("sqrt"), LearningRateScaling::kSquareRoot);
  EXPECT_EQ(ParseLearningRateScaling("").status().message(),
            "learning rate scaling '' is none of none, linear, sqrt");
}

}  // namespace
}  // namespace ddprun
