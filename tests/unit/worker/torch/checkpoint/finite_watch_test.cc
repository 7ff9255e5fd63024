#include "worker/torch/checkpoint/background_write.h"

#include <gtest/gtest.h>
#include <torch/nn/modules.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>

namespace ddprun::worker {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Net : torch::nn::Module {
  Net() {
    z = register_parameter("z", torch::ones({2}));
    a = register_parameter("a", torch::ones({2}));
    never = register_parameter("never", torch::full({2}, -kInfinity));
    mask = register_buffer("mask", torch::ones({2}));
  }
  torch::Tensor z;
  torch::Tensor a;
  torch::Tensor never;
  torch::Tensor mask;
};

class FiniteWatchTest : public ::testing::Test {
 protected:
  Net net_;
  torch::optim::SGD optimizer_ = torch::optim::SGD(net_.parameters(), 0.1);
  FiniteWatch watch_ = FiniteWatch(net_, optimizer_);
};

TEST_F(FiniteWatchTest, NamesTheFirstParameterInTheModulesOrder) {
  EXPECT_EQ(watch_.FindBad(ModuleTensors(net_, kModelPrefix)), "");
  const torch::NoGradGuard no_grad;
  net_.a[1] = kInfinity;
  EXPECT_EQ(watch_.FindBad(ModuleTensors(net_, kModelPrefix)),
            "the parameter 'a' has an infinite value");
  net_.z[0] = NAN;
  EXPECT_EQ(watch_.FindBad(ModuleTensors(net_, kModelPrefix)), "the parameter 'z' has a NaN");
}

TEST_F(FiniteWatchTest, WhatMayBeMeantIsNoProof) {
  const torch::NoGradGuard no_grad;
  net_.never[0] = NAN;  // it wasn't finite when the model was made
  net_.mask.fill_(-kInfinity);
  CheckpointTensors tensors = ModuleTensors(net_, kModelPrefix);
  tensors["extra.best.loss"] = torch::full({}, kInfinity);
  tensors["optimizer.0.exp_avg_sq"] = torch::full({2}, kInfinity);
  EXPECT_EQ(watch_.FindBad(tensors), "");
}

TEST_F(FiniteWatchTest, TheStateOfAShardIsLookedAt) {
  const CheckpointTensors shard = {{"optimizer.0.exp_avg@1", torch::full({1}, NAN)}};
  EXPECT_EQ(watch_.FindBad(shard), "'optimizer.0.exp_avg@1' has a NaN");
  watch_.Accept(shard);
  EXPECT_EQ(watch_.FindBad(shard), "");
}

TEST_F(FiniteWatchTest, WhatTrainingHasBegunWithIsNoProof) {
  const torch::NoGradGuard no_grad;
  net_.a[1] = NAN;
  watch_.Accept(ModuleTensors(net_, kModelPrefix));
  EXPECT_EQ(watch_.FindBad(ModuleTensors(net_, kModelPrefix)), "");
  net_.z[0] = NAN;
  EXPECT_EQ(watch_.FindBad(ModuleTensors(net_, kModelPrefix)), "the parameter 'z' has a NaN");
}

}  // namespace
}  // namespace ddprun::worker
