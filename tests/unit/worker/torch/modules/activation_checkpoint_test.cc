#include "ddprun/activation_checkpoint.h"

#include <ATen/autocast_mode.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/relu.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/types.h>
#include <torch/utils.h>

#include <stdexcept>
#include <vector>

namespace ddprun {
namespace {

// What a run leaves.
struct Outcome {
  torch::Tensor output;
  torch::Tensor input_gradient;
  torch::Tensor weight_gradient;
  torch::Tensor next_random;  // drawn between forward and backward pass
};

bool SameBits(const Outcome& one, const Outcome& other) {
  return one.output.equal(other.output) && one.input_gradient.equal(other.input_gradient) &&
         one.weight_gradient.equal(other.weight_gradient) &&
         one.next_random.equal(other.next_random);
}

class CheckpointActivationsTest : public ::testing::Test {
 protected:
  // A layer with dropout; counts its calls.
  torch::Tensor Layer(const torch::Tensor& input) {
    ++calls_;
    return at::dropout(at::relu(at::linear(input, weight_)), 0.3, /*train=*/true);
  }

  // `call` is the layer, in one way or another; random numbers begin at `seed`.
  template <typename Call>
  Outcome RunWith(const Call& call, uint64_t seed = 9) {
    weight_.mutable_grad().reset();
    torch::Tensor input = input_.clone().requires_grad_();
    torch::manual_seed(seed);
    Outcome run;
    run.output = call(input);
    run.next_random = torch::rand({4});
    torch::autograd::backward({run.output.to(torch::kFloat).square().sum()}, {});
    run.input_gradient = input.grad();
    run.weight_gradient = weight_.grad().clone();
    return run;
  }

  auto Plain() {
    return [this](const torch::Tensor& input) { return Layer(input); };
  }
  auto Checkpointed() {
    return [this](const torch::Tensor& input) { return CheckpointActivations(Plain(), input); };
  }

  torch::Tensor weight_ = torch::randn({32, 16}).requires_grad_();
  torch::Tensor input_ = torch::randn({8, 16});
  int calls_ = 0;
};

TEST_F(CheckpointActivationsTest, GradientsAndRandomNumbersAreThoseOfAPlainCallBitByBit) {
  const Outcome plain = RunWith(Plain());
  calls_ = 0;
  const Outcome checkpointed = RunWith(Checkpointed());
  EXPECT_EQ(calls_, 2);
  EXPECT_TRUE(SameBits(plain, checkpointed));
  // Negative control: with other dropout they differ.
  EXPECT_FALSE(SameBits(plain, RunWith(Checkpointed(), 10)));
}

// Negative control: a second run without the generators' state.
TEST_F(CheckpointActivationsTest, ASecondRunWithOtherRandomNumbersHasOtherGradients) {
  const Outcome plain = RunWith(Plain());
  const Outcome careless = RunWith([this](const torch::Tensor& input) {
    {
      const torch::NoGradGuard no_grad;
      Layer(input);
    }
    return Layer(input);
  });
  EXPECT_FALSE(plain.weight_gradient.equal(careless.weight_gradient));
}

TEST_F(CheckpointActivationsTest, AutocastOfTheFirstRunHoldsInTheSecond) {
  const auto in_bfloat16 = [](const auto& call) {
    return [call](const torch::Tensor& input) {
      at::autocast::set_autocast_enabled(at::kCPU, true);
      at::autocast::increment_nesting();
      const torch::Tensor output = call(input);
      if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
      at::autocast::set_autocast_enabled(at::kCPU, false);
      return output;
    };
  };
  const Outcome plain = RunWith(in_bfloat16(Plain()));
  ASSERT_EQ(plain.output.scalar_type(), torch::kBFloat16);
  EXPECT_TRUE(SameBits(plain, RunWith(in_bfloat16(Checkpointed()))));
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
  EXPECT_FALSE(plain.weight_gradient.equal(RunWith(Plain()).weight_gradient));
}

TEST_F(CheckpointActivationsTest, ParametersGetGradientsThoughNoInputNeedsOne) {
  const auto part = [this](const std::vector<torch::Tensor>& inputs) {
    return std::vector<torch::Tensor>{Layer(inputs[0]), inputs[1] + 1};
  };
  const std::vector<torch::Tensor> outputs =
      CheckpointActivations(part, {input_, torch::ones({2}, torch::kLong)});
  ASSERT_EQ(outputs.size(), 2U);
  EXPECT_EQ(outputs[1].sum().item<int64_t>(), 4);
  torch::autograd::backward({outputs[0].sum()}, {});
  EXPECT_GT(weight_.grad().abs().sum().item<float>(), 0);
}

TEST_F(CheckpointActivationsTest, WithoutGradientsItIsAPlainCall) {
  const torch::NoGradGuard no_grad;
  EXPECT_FALSE(CheckpointActivations(Plain(), input_).requires_grad());
  EXPECT_EQ(calls_, 1);
}

TEST_F(CheckpointActivationsTest, WhatThePartThrowsComesOut) {
  const auto throwing = [](const torch::Tensor&) -> torch::Tensor {
    throw std::runtime_error("bad layer");
  };
  EXPECT_THROW(CheckpointActivations(throwing, input_), std::runtime_error);
}

}  // namespace
}  // namespace ddprun
