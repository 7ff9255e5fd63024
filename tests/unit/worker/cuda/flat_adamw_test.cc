#include "worker/cuda/flat_adamw.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "worker/cuda/plugin.h"

namespace ddprun::worker::cuda {
namespace {

using ::testing::ElementsAreArray;
using ::testing::FloatNear;
using ::testing::HasSubstr;
using ::testing::Pointwise;

struct Shard {
  explicit Shard(size_t count)
      : parameters(count), gradients(count), exp_avg(count), exp_avg_sq(count) {
    for (size_t i = 0; i < count; ++i) {
      parameters[i] = std::sin(static_cast<float>(i));
      gradients[i] = std::cos(static_cast<float>(3 * i));
    }
  }
  FlatShard View() {
    return {parameters.data(), gradients.data(), exp_avg.data(), exp_avg_sq.data(),
            parameters.size()};
  }
  std::vector<float> parameters, gradients, exp_avg, exp_avg_sq;
};

// Algorithm 2 of the paper, in double precision and without any of the code under test.
std::vector<float> Reference(const Shard& start, const AdamWStep& step, int steps,
                             double gradient_factor) {
  std::vector<float> result;
  for (size_t i = 0; i < start.parameters.size(); ++i) {
    double parameter = start.parameters[i];
    double m = 0;
    double v = 0;
    for (int t = 1; t <= steps; ++t) {
      const double g = start.gradients[i] * gradient_factor;
      m = step.beta1 * m + (1 - step.beta1) * g;
      v = step.beta2 * v + (1 - step.beta2) * g * g;
      const double m_hat = m / (1 - std::pow(step.beta1, t));
      const double v_hat = v / (1 - std::pow(step.beta2, t));
      parameter -= step.learning_rate *
                   (m_hat / (std::sqrt(v_hat) + step.epsilon) + step.weight_decay * parameter);
    }
    result.push_back(static_cast<float>(parameter));
  }
  return result;
}

double NormOf(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += static_cast<double>(value) * value;
  return std::sqrt(sum);
}

void Train(Shard& shard, AdamWStep step, int steps) {
  const FlatAdamW& functions = CpuFlatAdamW();
  for (int t = 1; t <= steps; ++t) {
    double sum = 0;
    step.step = static_cast<uint64_t>(t);
    ASSERT_EQ(functions.add_squares(shard.gradients.data(), shard.gradients.size(),
                                    step.inverse_scale, &sum, nullptr),
              nullptr);
    ASSERT_EQ(functions.update(shard.View(), step, &sum, nullptr), nullptr);
  }
}

TEST(FlatAdamW, FollowsThePaper) {
  Shard shard(1000);
  const AdamWStep step = {.learning_rate = 0.01, .weight_decay = 0.1};
  const std::vector<float> expected = Reference(shard, step, 20, 1);
  Train(shard, step, 20);
  EXPECT_THAT(shard.parameters, Pointwise(FloatNear(1e-6F), expected));
}

TEST(FlatAdamW, UnscalesBeforeItClips) {
  Shard shard(1000);
  const double norm = NormOf(shard.gradients);
  for (float& gradient : shard.gradients) gradient *= 1024;
  const AdamWStep step = {
      .learning_rate = 0.01, .epsilon = 1e-3, .inverse_scale = 1.0 / 1024, .max_norm = norm / 4};
  const std::vector<float> expected = Reference(shard, step, 5, 1.0 / 1024 / 4);
  Train(shard, step, 5);
  EXPECT_THAT(shard.parameters, Pointwise(FloatNear(1e-6F), expected));
}

TEST(FlatAdamW, DoesNotLengthenShortGradients) {
  Shard shard(100);
  const AdamWStep step = {.epsilon = 1e-3, .max_norm = 1e6};
  const std::vector<float> expected = Reference(shard, step, 1, 1);
  Train(shard, step, 1);
  EXPECT_THAT(shard.parameters, Pointwise(FloatNear(1e-6F), expected));
}

TEST(FlatAdamW, LeavesAStepOutThatOverflowed) {
  for (const float bad :
       {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    Shard shard(100);
    shard.gradients[37] = bad;
    const Shard before = shard;
    Train(shard, {.inverse_scale = 0.5}, 1);
    EXPECT_THAT(shard.parameters, ElementsAreArray(before.parameters));
    EXPECT_THAT(shard.exp_avg, ElementsAreArray(before.exp_avg));
    EXPECT_THAT(shard.exp_avg_sq, ElementsAreArray(before.exp_avg_sq));
  }
}

TEST(FlatAdamW, OfNothingIsNothing) {
  Shard shard(0);
  Train(shard, {}, 1);
}

TEST(CudaPlugin, SaysWhatIsMissing) {
  setenv("DDPRUN_CUDA_PLUGIN", "/nowhere/libddprun_cuda.so", 1);
  const auto loaded = LoadCudaFlatAdamW();
  unsetenv("DDPRUN_CUDA_PLUGIN");
  ASSERT_EQ(loaded.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(loaded.status().message(), HasSubstr("'/nowhere/libddprun_cuda.so'"));
  EXPECT_THAT(loaded.status().message(), HasSubstr("nvcc"));
}

}  // namespace
}  // namespace ddprun::worker::cuda
