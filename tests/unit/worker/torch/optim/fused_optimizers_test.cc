// The fused optimizers beside torch::optim's, over the same gradients.
#include "ddprun/fused_optimizers.h"

#include <ATen/ops/randn_like.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <memory>
#include <tuple>
#include <vector>

#include "ddprun/parameters.h"
#include "tests/support/rounding.h"
#include "worker/torch/optim/optimizer_state.h"

namespace ddprun {
namespace {

using torch::nn::Linear;

// Two layers; the second has no gradient in every third step.
struct Twin {
  Twin() : first(16, 8), second(8, 4) {}
  std::vector<torch::Tensor> parameters() const {
    return {first->weight, first->bias, second->weight, second->bias};
  }
  Linear first;
  Linear second;
};

void CopyParameters(const Twin& from, Twin& to) {
  const torch::NoGradGuard no_grad;
  for (size_t i = 0; i < 4; ++i) to.parameters()[i].copy_(from.parameters()[i]);
}

void GiveGradients(int step, const Twin& left, const Twin& right) {
  const auto a = left.parameters();
  const auto b = right.parameters();
  for (size_t i = 0; i < a.size(); ++i) {
    const bool without = i >= 2 && step % 3 == 0;
    a[i].mutable_grad() = without ? torch::Tensor() : at::randn_like(a[i]).clamp_(-5, 5);
    b[i].mutable_grad() = without ? torch::Tensor() : a[i].grad().clone();
  }
}

constexpr double kSteps = 20;
constexpr double kRate = 1e-2;
// The first parameters are up to 1 / sqrt(8); no step of AdamW is longer than twice the rate, and
// SGD's buffer is at most 10 gradients.
constexpr double kFirst = 0.36;
constexpr double kGradient = 5;

using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

double BoundOf(const AdamWOptions& options) {
  return 2 * testing::AdamWRounding({.rate = kRate,
                                     .largest = kFirst + kSteps * 2 * kRate,
                                     .steps = kSteps,
                                     .beta1 = std::get<0>(options.betas()),
                                     .beta2 = std::get<1>(options.betas())});
}

double BoundOf(const SGDOptions& options) {
  const double momentum = options.momentum();
  const double largest = kFirst + kSteps * kRate * kGradient / (1 - momentum);
  return 2 * testing::SgdRounding({.rate = kRate,
                                   .largest = largest,
                                   .gradient = kGradient + options.weight_decay() * largest,
                                   .steps = kSteps,
                                   .momentum = momentum});
}

template <typename Fused, typename Plain, typename Options>
void ExpectAlike(const Options& options) {
  Twin fused;
  Twin plain;
  CopyParameters(fused, plain);
  Fused fused_optimizer(fused.parameters(), options);
  Plain plain_optimizer(plain.parameters(), options);
  for (int step = 0; step < kSteps; ++step) {
    GiveGradients(step, fused, plain);
    fused_optimizer.step();
    plain_optimizer.step();
  }
  for (size_t i = 0; i < 4; ++i) {
    const torch::Tensor difference = (fused.parameters()[i] - plain.parameters()[i]).abs().max();
    EXPECT_LE(difference.item<double>(), BoundOf(options)) << i;
  }
  // The same names and shapes: either's checkpoint fits the other.
  const auto state = worker::GetOptimizerState(fused_optimizer);
  ASSERT_TRUE(state.ok()) << state.status();
  EXPECT_TRUE(worker::SetOptimizerState(plain_optimizer, *state).ok());
}

TEST(FusedOptimizersTest, AdamWIsTorchs) {
  using torch::optim::AdamW;
  torch::manual_seed(1);
  ExpectAlike<FusedAdamW, AdamW>(AdamWOptions(1e-2));
  ExpectAlike<FusedAdamW, AdamW>(AdamWOptions(1e-2).weight_decay(0.3).betas({0.5, 0.7}).eps(1e-4));
  ExpectAlike<FusedAdamW, AdamW>(AdamWOptions(1e-2).amsgrad(true));
}

TEST(FusedOptimizersTest, SgdIsTorchs) {
  using torch::optim::SGD;
  torch::manual_seed(2);
  ExpectAlike<FusedSGD, SGD>(SGDOptions(1e-2));
  ExpectAlike<FusedSGD, SGD>(SGDOptions(1e-2).weight_decay(0.1));
  ExpectAlike<FusedSGD, SGD>(SGDOptions(1e-2).momentum(0.9));
  ExpectAlike<FusedSGD, SGD>(SGDOptions(1e-2).momentum(0.9).nesterov(true));
  ExpectAlike<FusedSGD, SGD>(SGDOptions(1e-2).momentum(0.9).dampening(0.3));
}

TEST(FusedOptimizersTest, GoOnAfterARestoreAsIfNothingHadBeen) {
  torch::manual_seed(3);
  Twin whole;
  Twin resumed;
  CopyParameters(whole, resumed);
  FusedAdamW one(whole.parameters(), torch::optim::AdamWOptions(1e-2));
  auto other = std::make_unique<FusedAdamW>(resumed.parameters(), torch::optim::AdamWOptions(1e-2));
  for (int step = 0; step < 10; ++step) {
    if (step == 5) {
      const auto state = *worker::GetOptimizerState(*other);
      other = std::make_unique<FusedAdamW>(resumed.parameters(), torch::optim::AdamWOptions(1e-2));
      ASSERT_TRUE(worker::SetOptimizerState(*other, state).ok());
    }
    GiveGradients(step, whole, resumed);
    one.step();
    other->step();
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(whole.parameters()[i].equal(resumed.parameters()[i])) << i;
  }
}

// A convolution's weight with the channels last, beside one with them first; the gradients and the
// restored state have them first.
TEST(FusedOptimizersTest, PairElementsWhateverTheirOrderInMemory) {
  torch::manual_seed(5);
  torch::Tensor plain = torch::randn({4, 3, 2, 2});
  torch::Tensor last = plain.contiguous(at::MemoryFormat::ChannelsLast);
  ASSERT_NE(plain.strides(), last.strides());
  FusedAdamW one(std::vector{plain}, AdamWOptions(1e-2));
  auto other = std::make_unique<FusedAdamW>(std::vector{last}, AdamWOptions(1e-2));
  for (int step = 0; step < 6; ++step) {
    if (step == 3) {
      auto state = *worker::GetOptimizerState(*other);
      for (auto& [name, tensor] : state) tensor = tensor.contiguous();
      other = std::make_unique<FusedAdamW>(std::vector{last}, AdamWOptions(1e-2));
      ASSERT_TRUE(worker::SetOptimizerState(*other, state).ok());
      EXPECT_EQ((*worker::GetOptimizerState(*other))["0.exp_avg"].strides(), last.strides());
    }
    plain.mutable_grad() = torch::randn({4, 3, 2, 2});
    last.mutable_grad() = plain.grad().clone();
    one.step();
    other->step();
    EXPECT_TRUE(last.allclose(plain, /*rtol=*/1e-5, /*atol=*/1e-6)) << step;
  }
}

TEST(FusedOptimizersTest, APartOfALargerTensorIsAnError) {
  torch::Tensor part = torch::randn({4, 4}).narrow(1, 0, 2);
  part.mutable_grad() = torch::ones({4, 2});
  EXPECT_THROW(FusedSGD(std::vector{part}, SGDOptions(1e-2)).step(), c10::Error);
}

// Registered under two names, as a GPT's input and output layers are.
struct TiedImpl : torch::nn::Module {
  TiedImpl() { register_parameter("head", first->weight); }
  Linear first = register_module("first", Linear(16, 8));
};

TEST(FusedOptimizersTest, StepATiedParameterOnce) {
  torch::manual_seed(4);
  for (const bool adam : {true, false}) {
    TiedImpl tied;
    Linear plain(16, 8);
    {
      const torch::NoGradGuard no_grad;
      for (size_t i = 0; i < 2; ++i) plain->parameters()[i].copy_(Parameters(tied)[i]);
    }
    ASSERT_EQ(tied.parameters().size(), 3U);  // what LibTorch lists
    std::unique_ptr<torch::optim::Optimizer> ours;
    std::unique_ptr<torch::optim::Optimizer> theirs;
    if (adam) {
      ours = std::make_unique<FusedAdamW>(tied.parameters(), AdamWOptions(1e-2));
      theirs = std::make_unique<FusedAdamW>(plain->parameters(), AdamWOptions(1e-2));
    } else {
      ours = std::make_unique<FusedSGD>(tied.parameters(), SGDOptions(1e-2).momentum(0.9));
      theirs = std::make_unique<FusedSGD>(plain->parameters(), SGDOptions(1e-2).momentum(0.9));
    }
    for (int step = 0; step < 3; ++step) {
      for (size_t i = 0; i < 2; ++i) {
        plain->parameters()[i].mutable_grad() = at::randn_like(plain->parameters()[i]);
        Parameters(tied)[i].mutable_grad() = plain->parameters()[i].grad().clone();
      }
      ours->step();
      theirs->step();
    }
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(Parameters(tied)[i].equal(plain->parameters()[i])) << adam << i;
    }
    EXPECT_EQ(worker::GetOptimizerState(*ours)->size(), worker::GetOptimizerState(*theirs)->size());
  }
}

// Python's error: "some parameters appear in more than one parameter group".
TEST(FusedOptimizersTest, AParameterInTwoGroupsIsAnError) {
  Linear layer(16, 8);
  const std::vector<torch::optim::OptimizerParamGroup> groups = {{layer->parameters()},
                                                                 {{layer->bias}}};
  EXPECT_THROW(FusedAdamW(groups, AdamWOptions(1e-2)), c10::Error);
  EXPECT_THROW(FusedSGD(groups, SGDOptions(1e-2)), c10::Error);
}

TEST(FusedOptimizersTest, RunTheClosureWithGradients) {
  Twin twin;
  FusedSGD optimizer(twin.parameters(), torch::optim::SGDOptions(1.0));
  const torch::Tensor before = twin.first->bias.detach().clone();
  const torch::Tensor loss = optimizer.step([&] {
    optimizer.zero_grad();
    torch::Tensor sum = twin.first->bias.sum();
    sum.backward();
    return sum;
  });
  EXPECT_TRUE(loss.equal(before.sum()));
  EXPECT_TRUE(twin.first->bias.equal(before - 1));
}

}  // namespace
}  // namespace ddprun
