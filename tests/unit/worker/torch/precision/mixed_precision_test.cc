// Autocast, GradScaler and the clipping that goes with them.
#include <ATen/autocast_mode.h>
#include <ATen/ops/allclose.h>
#include <ATen/ops/randn.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/utils/clip_grad.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>
#include <string>

#include "base/status_macros.h"
#include "ddprun/autocast.h"
#include "ddprun/clip_grad_norm.h"
#include "ddprun/grad_scaler.h"

namespace ddprun {
namespace {

using torch::nn::Linear;

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(AutocastTest, RunsProductsInHalfPrecision) {
  Linear layer(8, 4);
  const torch::Tensor input = at::randn({2, 8});
  {
    const Autocast autocast(torch::kCPU, MixedPrecision::kBFloat16);
    EXPECT_EQ(layer->forward(input).scalar_type(), torch::kBFloat16);
    {
      const Autocast inner(torch::kCPU, MixedPrecision::kNo);
      EXPECT_EQ(layer->forward(input).scalar_type(), torch::kFloat);
      const Autocast innermost(torch::kCPU, MixedPrecision::kFloat16);
      EXPECT_EQ(layer->forward(input).scalar_type(), torch::kHalf);
    }
    EXPECT_EQ(layer->forward(input).scalar_type(), torch::kBFloat16);
  }
  EXPECT_EQ(layer->forward(input).scalar_type(), torch::kFloat);
  EXPECT_FALSE(at::autocast::is_autocast_enabled(at::kCPU));
}

TEST(AutocastTest, GradientsStayInFullPrecision) {
  Linear layer(8, 4);
  torch::Tensor loss;
  {
    const Autocast autocast(torch::kCPU, MixedPrecision::kBFloat16);
    loss = layer->forward(at::randn({2, 8})).sum();
  }
  loss.backward();
  EXPECT_EQ(layer->weight.grad().scalar_type(), torch::kFloat);
}

TEST(AutocastTest, KnowsItsWords) {
  EXPECT_EQ(*ParseMixedPrecision("bf16"), MixedPrecision::kBFloat16);
  EXPECT_EQ(ParseMixedPrecision("bfloat16").status().message(),
            "mixed precision 'bfloat16' is none of no, fp16, bf16");
}

struct Scaled : ::testing::Test {
  // A step whose gradient is `gradient` before scaling. Returns whether the optimizer stepped.
  bool Step(float gradient) {
    optimizer.zero_grad();
    scaler.Scale((layer->weight * gradient).sum()).backward();
    const absl::StatusOr<bool> stepped = scaler.Step(optimizer);
    EXPECT_TRUE(scaler.Update().ok());
    EXPECT_TRUE(stepped.ok()) << stepped.status();
    return stepped.value_or(false);
  }

  Linear layer{torch::nn::LinearOptions(1, 1).bias(false)};
  torch::optim::SGD optimizer{layer->parameters(), torch::optim::SGDOptions(1.0)};
  GradScaler scaler{{.init_scale = 1024, .growth_interval = 3}};
};

TEST_F(Scaled, StepsByTheGradientWithoutTheScale) {
  const auto before = layer->weight.item<float>();
  EXPECT_TRUE(Step(0.25F));
  EXPECT_FLOAT_EQ(layer->weight.item<float>(), before - 0.25F);
}

TEST_F(Scaled, AnOverflowIsLeftOutAndLowersTheScale) {
  const auto before = layer->weight.item<float>();
  EXPECT_FALSE(Step(kInfinity));
  EXPECT_FALSE(Step(std::numeric_limits<float>::quiet_NaN()));
  EXPECT_EQ(layer->weight.item<float>(), before);
  EXPECT_EQ(scaler.scale(), 256);
  EXPECT_TRUE(Step(1));
}

TEST_F(Scaled, GrowsAfterAsManyGoodSteps) {
  EXPECT_TRUE(Step(1) && Step(1));
  EXPECT_FALSE(Step(kInfinity));  // begins the count anew
  EXPECT_TRUE(Step(1) && Step(1));
  EXPECT_EQ(scaler.scale(), 512);
  EXPECT_EQ(scaler.growth_tracker(), 2);
  EXPECT_TRUE(Step(1));
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_EQ(scaler.growth_tracker(), 0);
}

TEST_F(Scaled, UnscalesOnceForClippingAndStep) {
  optimizer.zero_grad();
  scaler.Scale((layer->weight * 3).sum()).backward();
  ASSERT_TRUE(scaler.Unscale(optimizer).ok());
  EXPECT_FLOAT_EQ(layer->weight.grad().item<float>(), 3);
  EXPECT_TRUE(*scaler.Step(optimizer));
  EXPECT_FLOAT_EQ(layer->weight.grad().item<float>(), 3);
}

TEST_F(Scaled, UnscalesATiedParameterOnce) {
  layer->register_parameter("head", layer->weight);
  torch::optim::SGD twice(layer->parameters(), torch::optim::SGDOptions(1.0));
  scaler.Scale((layer->weight * 3).sum()).backward();
  ASSERT_TRUE(scaler.Unscale(twice).ok());
  EXPECT_FLOAT_EQ(layer->weight.grad().item<float>(), 3);
}

TEST_F(Scaled, GoesOnFromACheckpoint) {
  EXPECT_TRUE(Step(1) && Step(1));
  GradScaler restored({.init_scale = 1, .growth_interval = 3});
  restored.Restore(scaler.scale(), scaler.growth_tracker());
  ASSERT_TRUE(restored.Step(optimizer).ok());
  ASSERT_TRUE(restored.Update().ok());
  EXPECT_EQ(restored.scale(), 2048);
}

// A peer's death may break a step after any call: it is done again, with gradients of its own.
TEST_F(Scaled, BeginsAStepWithAStateThatItGets) {
  const auto before = layer->weight.item<float>();
  const GradScaler::Tensors state = scaler.SaveState();
  scaler.Scale((layer->weight * 2).sum()).backward();
  ASSERT_TRUE(scaler.Unscale(optimizer).ok());
  ASSERT_TRUE(scaler.RestoreState(state).ok());
  EXPECT_TRUE(Step(2));
  EXPECT_FLOAT_EQ(layer->weight.item<float>(), before - 2);
  ASSERT_TRUE(scaler.Step(optimizer).ok());
  ASSERT_TRUE(scaler.RestoreState(state).ok());
  EXPECT_TRUE(Step(2));
}

// An fp32 run that goes on in fp16 began with a scale of 1.
TEST_F(Scaled, TheStateOfOneThatIsOffChangesNothing) {
  const double before = scaler.scale();
  EXPECT_TRUE(Step(1));
  GradScaler off({.enabled = false});
  ASSERT_TRUE(scaler.RestoreState(off.SaveState()).ok());
  EXPECT_EQ(scaler.scale(), before);
  EXPECT_EQ(scaler.growth_tracker(), 1);
  ASSERT_TRUE(off.RestoreState(off.SaveState()).ok());
  ASSERT_TRUE(off.RestoreState(scaler.SaveState()).ok());
  EXPECT_EQ(off.scale(), 1);
}

TEST_F(Scaled, PassesThroughWhenDisabled) {
  GradScaler off({.enabled = false});
  const torch::Tensor loss = layer->weight.sum();
  EXPECT_TRUE(off.Scale(loss).is_same(loss));
  layer->weight.mutable_grad() = torch::full({1, 1}, kInfinity);
  EXPECT_TRUE(*off.Step(optimizer));
  EXPECT_TRUE(off.Update().ok());
  EXPECT_TRUE(off.Update().ok());
  EXPECT_EQ(off.scale(), 1);
}

// Two optimizers of one loss; their parameters have gradients of 1 and `gradient`.
struct TwoScaled : ::testing::Test {
  void Backward(float gradient) {
    for (torch::Tensor* one : {&a, &b}) one->mutable_grad() = torch::Tensor();
    scaler.Scale(a.sum() + b.sum() * gradient).backward();
  }
  void ExpectWrongOrder(const absl::Status& status, const std::string& words) {
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_EQ(std::string(status.message()).find(words), 0U) << status;
  }

  torch::Tensor a = torch::ones({2}).requires_grad_();
  torch::Tensor b = torch::ones({2}).requires_grad_();
  torch::optim::SGD first{{a}, torch::optim::SGDOptions(1.0)};
  torch::optim::SGD second{{b}, torch::optim::SGDOptions(1.0)};
  GradScaler scaler{{.init_scale = 1024}};
};

TEST_F(TwoScaled, EachStepsByItsGradientsWithoutTheScale) {
  Backward(1);
  EXPECT_TRUE(*scaler.Step(first));
  EXPECT_TRUE(*scaler.Step(second));
  ASSERT_TRUE(scaler.Update().ok());
  // The second one's used to be left scaled, and it stepped to -1023.
  EXPECT_EQ(a[0].item<float>(), 0);
  EXPECT_EQ(b[0].item<float>(), 0);
}

TEST_F(TwoScaled, OnlyTheOneThatOverflowedIsLeftOut) {
  for (const bool overflow_first : {false, true}) {
    Backward(kInfinity);
    torch::optim::SGD& one = overflow_first ? second : first;
    torch::optim::SGD& other = overflow_first ? first : second;
    EXPECT_EQ(*scaler.Step(one), !overflow_first);
    EXPECT_EQ(*scaler.Step(other), overflow_first);
    ASSERT_TRUE(scaler.Update().ok());
  }
  EXPECT_EQ(a[0].item<float>(), -1);
  EXPECT_EQ(b[0].item<float>(), 1);
  EXPECT_EQ(scaler.scale(), 256);
}

// Python raises errors in the same cases.
TEST_F(TwoScaled, AnotherOrderIsAnError) {
  ExpectWrongOrder(scaler.Update(), "no optimizer was unscaled since the last Update()");
  Backward(1);
  ASSERT_TRUE(scaler.Unscale(first).ok());
  ExpectWrongOrder(scaler.Unscale(first), "Unscale() has already been called on this optimizer");
  EXPECT_TRUE(scaler.Unscale(second).ok());
  ASSERT_TRUE(scaler.Step(first).ok());
  ExpectWrongOrder(scaler.Unscale(first), "Unscale() is called after Step()");
  ExpectWrongOrder(scaler.Step(first).status(), "Step() has already been called");
  Linear none(1, 1);
  ExpectWrongOrder(scaler.ClipGradNorm(first, *none, 1).status(),
                   "ClipGradNorm() is called after Step()");
  EXPECT_TRUE(*scaler.Step(second));
  EXPECT_EQ(b[0].item<float>(), 0);  // divided once
  ASSERT_TRUE(scaler.Update().ok());
  Backward(1);
  EXPECT_TRUE(scaler.Unscale(first).ok());
}

TEST_F(TwoScaled, HalfPrecisionGradientsAreRefused) {
  b = torch::ones({2}, torch::kHalf).requires_grad_();
  b.mutable_grad() = torch::ones({2}, torch::kHalf);
  torch::optim::SGD half({b}, torch::optim::SGDOptions(1.0));
  ExpectWrongOrder(scaler.Step(half).status(), "a GradScaler can't unscale fp16 gradients");
}

// The example at the head of grad_scaler.h.
absl::Status ScaledStep(Linear& model, torch::optim::SGD& optimizer, GradScaler& scaler,
                        const torch::Tensor& loss) {
  scaler.Scale(loss).backward();
  DDPRUN_RETURN_IF_ERROR(scaler.ClipGradNorm(optimizer, *model, 1.0).status());
  DDPRUN_RETURN_IF_ERROR(scaler.Step(optimizer).status());
  return scaler.Update();
}

TEST_F(Scaled, AnOverflowIsNoErrorOfClipping) {
  const auto before = layer->weight.item<float>();
  for (const float gradient : {kInfinity, NAN}) {
    optimizer.zero_grad();
    ASSERT_TRUE(ScaledStep(layer, optimizer, scaler, (layer->weight * gradient).sum()).ok());
  }
  EXPECT_EQ(scaler.scale(), 256);
  EXPECT_EQ(layer->weight.item<float>(), before);
  // A finite one is clipped to 1, and what clips is the gradient without the scale.
  optimizer.zero_grad();
  ASSERT_TRUE(ScaledStep(layer, optimizer, scaler, (layer->weight * 4).sum()).ok());
  // Off by the 1e-6 in the factor, and roundings of factor, product and difference.
  EXPECT_NEAR(layer->weight.item<float>(), before - 1, 1e-6 + 3.0 / (1 << 24));
  // Negative control: without a scaler it is an error that names the parameter.
  layer->weight.mutable_grad() = torch::full({1, 1}, kInfinity);
  EXPECT_EQ(ClipGradNorm(*layer, 1).status().code(), absl::StatusCode::kFailedPrecondition);
  GradScaler off({.enabled = false});
  EXPECT_EQ(off.ClipGradNorm(optimizer, *layer, 1).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

// Each gradient is finite, the sum of their squares isn't.
TEST_F(Scaled, ANormBeyondTheRangeIsAnOverflowToo) {
  layer->weight.mutable_grad() = torch::full({1, 1}, 3e38F);
  layer->register_parameter("other", torch::ones({1}).requires_grad_()).mutable_grad() =
      torch::full({1}, 3e38F);
  scaler.Restore(1, 0);
  EXPECT_EQ(*scaler.ClipGradNorm(optimizer, *layer, 1), kInfinity);
  EXPECT_FALSE(*scaler.Step(optimizer));
  ASSERT_TRUE(scaler.Update().ok());
  EXPECT_EQ(scaler.scale(), 0.5);
}

// Each of the two norms is off by at most (18 / 2 + 6) u: 18 squares and their sum, the roots of
// two tensors and of both together, whatever the order of the sum; the factor and the product add
// 2 u. With u = 2^-24.
constexpr double kNormRounding = 2 * (18.0 / 2 + 6) / (1 << 24);
constexpr double kClippedRounding = kNormRounding + 4.0 / (1 << 24);

TEST(ClipGradNormTest, IsTorchs) {
  torch::manual_seed(4);
  Linear ours(5, 3);
  Linear theirs(5, 3);
  for (const double max_norm : {0.5, 1e9}) {
    for (size_t i = 0; i < 2; ++i) {
      ours->parameters()[i].mutable_grad() = torch::randn_like(ours->parameters()[i]);
      theirs->parameters()[i].mutable_grad() = ours->parameters()[i].grad().clone();
    }
    const double norm = torch::nn::utils::clip_grad_norm_(theirs->parameters(), max_norm);
    EXPECT_NEAR(*ClipGradNorm(*ours, max_norm), norm, norm * kNormRounding);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_TRUE(at::allclose(ours->parameters()[i].grad(), theirs->parameters()[i].grad(),
                               kClippedRounding, /*atol=*/0));
    }
  }
}

TEST(ClipGradNormTest, CountsATiedParameterOnce) {
  Linear layer(2, 2);
  layer->register_parameter("head", layer->weight);
  layer->weight.mutable_grad() = torch::ones({2, 2});
  layer->bias.mutable_grad() = torch::zeros({2});
  // The gradients are ones, and their norm is 2: nothing is rounded before the factor, which is 0.5
  // except for the 1e-6 in it and a rounding.
  EXPECT_EQ(*ClipGradNorm(*layer, 1), 2);
  EXPECT_NEAR(layer->weight.grad()[0][0].item<double>(), 1 / (2 + 1e-6), 1.0 / (1 << 24));
}

TEST(ClipGradNormTest, NamesWhatIsNotFinite) {
  Linear layer(2, 2);
  layer->weight.mutable_grad() = torch::ones({2, 2});
  layer->bias.mutable_grad() = torch::full({2}, NAN);
  const absl::Status status = ClipGradNorm(*layer, 1).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("the gradient of 'bias' has a NaN"), std::string::npos) << status;
  EXPECT_TRUE(layer->weight.grad().equal(torch::ones({2, 2})));
}

TEST(ClipGradNormTest, WithoutGradientsThereIsNoNorm) {
  Linear layer(2, 2);
  EXPECT_EQ(*ClipGradNorm(*layer, 1), 0);
}

TEST(CheckLossTest, TellsAboutTheLossAndTheParameters) {
  Linear layer(2, 2);
  EXPECT_TRUE(CheckLoss(torch::tensor(1.5), *layer).ok());
  EXPECT_NE(CheckLoss(torch::tensor(NAN), *layer).message().find("all parameters are finite"),
            std::string::npos);
  const torch::NoGradGuard no_grad;
  layer->bias[1] = kInfinity;
  EXPECT_NE(CheckLoss(torch::tensor(NAN), *layer).message().find("the parameter 'bias'"),
            std::string::npos);
}

}  // namespace
}  // namespace ddprun
