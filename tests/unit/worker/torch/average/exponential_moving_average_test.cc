// The average of parameters beside PyTorch's, without ZeRO and in each of its stages.
#include "ddprun/exponential_moving_average.h"

#include <ATen/ops/arange.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/nn/modules.h>
#include <torch/optim/adamw.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/parameters.h"
#include "ddprun/weights.h"
#include "ddprun/zero_optimizer.h"
#include "tests/support/rounding.h"

namespace ddprun::average_test {
namespace {

using ::testing::HasSubstr;
using torch::nn::BatchNorm1d;
using torch::nn::Linear;
using torch::nn::Sequential;

constexpr double kDecay = 0.9;
constexpr int kSteps = 40;
// What one step rounds, for numbers of at most 1: the difference to a parameter by 2 u, and a tenth
// of that counts; its weight and their product by a fifth of u each; the sum by u. That is 0.2 +
// 0.2 + 0.2 + 1 = 1.6 u. What earlier steps left is multiplied by the decay.
constexpr double kBound = 1.6 * testing::kUnit / (1 - kDecay);

// torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=get_ema_multi_avg_fn(0.9)) of PyTorch 2.11
// after 40 times update_parameters(net), each after what SetParameters does.
const std::vector<std::vector<double>> kOfTorch = {
    {-0.0426156782, 0.00687859114, -0.0560697019, 0.0618625246, -0.012342629, 0.0122539131},
    {0.0443655439, -0.103607036},
    {-0.0209843069, -0.0695252791},
    {-0.124037728, -0.00943940971}};

// A training whose parameters a test sets. Stage 0: without ZeRO.
struct Training {
  Training(Context& context, int stage, double decay = kDecay) {
    const torch::optim::AdamWOptions options(1e-3);
    if (stage == 0) {
      optimizer = std::make_unique<FusedAdamW>(Parameters(*net), options);
    } else {
      optimizer = *ZeroOptimizer::Create(net.ptr(), context, options, {.stage = stage});
    }
    average = std::make_unique<ExponentialMovingAverage>(net.ptr(), *optimizer, decay);
  }

  void SetParameters(int64_t step) {
    const torch::NoGradGuard no_grad;
    int64_t number = 0;
    for (torch::Tensor& parameter : Parameters(*net)) {
      const torch::Tensor numbers = at::arange(parameter.numel()) * 13 + step * 7 + number++ * 5;
      parameter.copy_(((numbers % 32).to(torch::kFloat) / 16 - 1).view_as(parameter));
    }
    Buffers(*net)[0].fill_(static_cast<double>(step));
  }
  void Train(int64_t steps, int64_t first = 1) {
    for (int64_t step = first; step < first + steps; ++step) {
      SetParameters(step);
      average->Update();
    }
  }
  std::vector<torch::Tensor> Copies() const {
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> copies;
    for (const torch::Tensor& parameter : Parameters(*net)) copies.push_back(parameter.clone());
    return copies;
  }
  std::vector<torch::Tensor> Averages() {
    const ExponentialMovingAverage::InPlace averaged(*average);
    return Copies();
  }

  Sequential net{Linear(3, 2), BatchNorm1d(2)};
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::unique_ptr<ExponentialMovingAverage> average;
};

double FarthestFromTorchs(const std::vector<torch::Tensor>& averages) {
  double farthest = 0;
  for (size_t i = 0; i < averages.size(); ++i) {
    const torch::Tensor difference =
        averages[i].flatten().to(torch::kDouble) - torch::tensor(kOfTorch[i], torch::kDouble);
    farthest = std::max(farthest, difference.abs().max().item<double>());
  }
  return farthest;
}

bool Same(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  bool same = a.size() == b.size();
  for (size_t i = 0; same && i < a.size(); ++i) same = a[i].equal(b[i]);
  return same;
}

class ExponentialMovingAverageTest : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/average_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    context_ = *Context::Create();
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::unique_ptr<Checkpointer> MakeCheckpointer(Training& training, bool with_average = true) {
    auto made = std::make_unique<Checkpointer>(
        *context_, training.net.ptr(), *training.optimizer,
        CheckpointerOptions{.directory = directory_, .sharded = true, .tell_of_none = false});
    if (with_average) made->Add(*training.average);
    return made;
  }

  std::string directory_;
  std::unique_ptr<Context> context_;
};

INSTANTIATE_TEST_SUITE_P(Stages, ExponentialMovingAverageTest, ::testing::Values(0, 1, 2, 3));

TEST_P(ExponentialMovingAverageTest, IsTorchs) {
  Training training(*context_, GetParam());
  training.Train(kSteps);
  EXPECT_LE(FarthestFromTorchs(training.Averages()), 2 * kBound);
  // Negative controls: another decay, and one that begins with the parameters before the first
  // step.
  Training other(*context_, GetParam(), 0.95);
  other.Train(kSteps);
  EXPECT_GT(FarthestFromTorchs(other.Averages()), 1000 * kBound);
  Training early(*context_, GetParam());
  early.average->Update();
  early.Train(kSteps);
  EXPECT_GT(FarthestFromTorchs(early.Averages()), 1000 * kBound);
}

TEST_P(ExponentialMovingAverageTest, IsInPlaceForAsLongAsItIsWanted) {
  Training training(*context_, GetParam());
  const std::vector<torch::Tensor> first = training.Copies();
  EXPECT_TRUE(Same(training.Averages(), first));  // there is none yet
  training.Train(3);
  const std::vector<torch::Tensor> parameters = training.Copies();
  {
    ExponentialMovingAverage::InPlace averaged(*training.average);
    EXPECT_FALSE(Same(training.Copies(), parameters));
    EXPECT_EQ(Buffers(*training.net)[0][0].item<double>(), 3);  // of the last step, as PyTorch's
    EXPECT_TRUE(averaged.PutBack().ok());
    EXPECT_TRUE(Same(training.Copies(), parameters));
  }
  EXPECT_TRUE(Same(training.Copies(), parameters));
  try {
    const ExponentialMovingAverage::InPlace averaged(*training.average);
    throw std::runtime_error("an evaluation failed");
  } catch (const std::runtime_error&) {
    if (GetParam() > 0) training.optimizer->step();  // without gradients: gathers the shares
  }
  EXPECT_TRUE(Same(training.Copies(), parameters));
}

TEST_P(ExponentialMovingAverageTest, GoesOnFromACheckpointOfAnyStageBitByBit) {
  Training whole(*context_, GetParam());
  Training half(*context_, GetParam());
  whole.Train(7);
  half.Train(4);
  ASSERT_TRUE(MakeCheckpointer(half)->SaveAsync({.step = 4}).ok());
  for (const int stage : {0, 1, 3}) {
    Training resumed(*context_, stage);
    resumed.Train(2, 100);  // what it was counts no more
    ASSERT_TRUE(MakeCheckpointer(resumed)->Restore().ok());
    EXPECT_TRUE(Same(resumed.Averages(), half.Averages())) << stage;
    resumed.Train(3, 5);
    EXPECT_TRUE(Same(resumed.Averages(), whole.Averages())) << stage;
  }
}

// The names are those of a whole model, as Python's load_state_dict wants them.
TEST_P(ExponentialMovingAverageTest, IsAModelInACheckpoint) {
  Training training(*context_, GetParam());
  training.Train(4);
  {
    const ExponentialMovingAverage::InPlace averaged(*training.average);
    EXPECT_THAT(MakeCheckpointer(training)->Save({.step = 4}).ToString(),
                HasSubstr("the averages are in the parameters' place"));
  }
  ASSERT_TRUE(MakeCheckpointer(training)->Save({.step = 4}).ok());
  std::string path;
  for (const auto& entry : std::filesystem::directory_iterator(directory_)) {
    if (entry.path().string().find("-of-") == std::string::npos) path = entry.path();
  }
  Training other(*context_, 0);
  const auto loaded = LoadWeights(*other.net, path, {.prefix = "ema."});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(Same(other.Copies(), training.Averages()));
  EXPECT_EQ(Buffers(*other.net)[0][0].item<double>(), 4);
}

TEST_P(ExponentialMovingAverageTest, BeginsAnewFromACheckpointWithoutOne) {
  Training without(*context_, GetParam());
  without.Train(4);
  ASSERT_TRUE(MakeCheckpointer(without, /*with_average=*/false)->Save({.step = 4}).ok());
  Training resumed(*context_, GetParam());
  resumed.Train(2, 100);
  ::testing::internal::CaptureStderr();
  ASSERT_TRUE(MakeCheckpointer(resumed)->Restore().ok());
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("the checkpoint has no average of the parameters (ema)"));
  EXPECT_FALSE(resumed.average->has_begun());
  EXPECT_TRUE(Same(resumed.Averages(), without.Copies()));
}

TEST_P(ExponentialMovingAverageTest, HasAShareForPeers) {
  if (GetParam() == 0) return;  // there are no shares
  Training training(*context_, GetParam());
  training.Train(4);
  ExponentialMovingAverage::Tensors share = training.average->OwnShare();
  EXPECT_EQ(share.size(), 5U);  // of four parameters, and that there is one
  for (auto& [name, tensor] : share) tensor = tensor.clone();
  const std::vector<torch::Tensor> averages = training.Averages();
  training.Train(2, 100);
  ASSERT_TRUE(training.average->RestoreShare(share).ok());
  EXPECT_TRUE(Same(training.Averages(), averages));
  share.erase("0.average@0");
  EXPECT_THAT(training.average->RestoreShare(share).ToString(), HasSubstr("has 0 of the"));
  EXPECT_TRUE(Same(training.Averages(), averages));
  ASSERT_TRUE(training.average->RestoreShare({}).ok());
  EXPECT_FALSE(training.average->has_begun());
}

// A difference of 1e-3 of a bf16 parameter is less than half its last place.
TEST(NarrowParametersTest, HaveAFloat32Average) {
  const std::unique_ptr<Context> context = *Context::Create();
  Training training(*context, 0, 0.999);
  training.net->to(torch::kBFloat16);
  training.Train(1);
  const torch::NoGradGuard no_grad;
  for (torch::Tensor& parameter : Parameters(*training.net)) parameter.fill_(1);
  for (int step = 0; step < 1000; ++step) training.average->Update();
  const auto whole = training.average->Whole(/*target=*/0);
  ASSERT_TRUE(whole.ok());
  for (const auto& [name, average] : *whole) {
    EXPECT_EQ(average.scalar_type(), torch::kFloat);
    // From at most 1 away to 0.999^1000 of that.
    EXPECT_LT((average - 1).abs().max().item<double>(), 2 * 0.37);
  }
}

}  // namespace
}  // namespace ddprun::average_test
