// Parameters in bf16 and their float32 masters, without ZeRO and in each of its stages.
#include "worker/torch/optim/master_parameters.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>
#include <torch/serialize.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "ddprun/checkpointer.h"
#include "ddprun/context.h"
#include "ddprun/exponential_moving_average.h"
#include "ddprun/fused_optimizers.h"
#include "ddprun/parameters.h"
#include "ddprun/zero_optimizer.h"
#include "worker/torch/optim/optimizer_set.h"
#include "worker/torch/optim/optimizer_state.h"

namespace ddprun::masters_test {
namespace {

using torch::optim::AdamWOptions;
using torch::optim::SGDOptions;

// A unit in the last place is 2^-8 of numbers from a half to one, and 2^-7 above: a step of the
// rate from one is less than half of either.
constexpr double kRate = 1e-3;
constexpr int kSteps = 200;

// A net with gradients that bf16 has without rounding, whatever the parameters are.
struct NetImpl : torch::nn::Module {
  torch::Tensor Loss() const {
    torch::Tensor sum;
    for (const torch::Tensor& parameter : {weight, bias}) {
      const torch::Tensor gradient =
          (at::arange(parameter.numel()).remainder(4) / 8 + 1).view_as(parameter);
      const torch::Tensor loss = (parameter * gradient.to(parameter.scalar_type())).sum();
      sum = sum.defined() ? sum + loss : loss;
    }
    return sum;
  }
  torch::Tensor weight = register_parameter("weight", at::ones({6, 4}));
  torch::Tensor bias = register_parameter("bias", at::ones({9}));
};
TORCH_MODULE(Net);

template <typename Options>
std::unique_ptr<torch::optim::Optimizer> Fused(Net net, const Options& options) {
  if constexpr (std::is_same_v<Options, AdamWOptions>) {
    return std::make_unique<FusedAdamW>(net->parameters(), options);
  } else {
    return std::make_unique<FusedSGD>(net->parameters(), options);
  }
}

// Stage 0: without ZeRO.
struct Training {
  template <typename Options>
  Training(Context& context, int stage, const Options& options,
           torch::ScalarType type = torch::kBFloat16) {
    net->to(type);
    if (stage == 0) {
      optimizer = Fused(net, options);
    } else {
      optimizer = *ZeroOptimizer::Create(net.ptr(), context, options, {.stage = stage});
    }
    average = std::make_unique<ExponentialMovingAverage>(net.ptr(), *optimizer, /*decay=*/0);
  }
  void Train(int steps) {
    for (int step = 0; step < steps; ++step) {
      auto* zero = dynamic_cast<ZeroOptimizer*>(optimizer.get());
      zero != nullptr ? zero->ZeroGrad() : optimizer->zero_grad();
      net->Loss().backward();
      optimizer->step();
      average->Update();
    }
  }
  // What the optimizer computes with: masters.
  std::vector<torch::Tensor> Masters() const {
    std::vector<torch::Tensor> masters;
    const auto whole = *average->Whole(/*target=*/0);
    for (const auto& [name, master] : whole) masters.push_back(master);
    return masters;
  }
  std::vector<torch::Tensor> Copies() const {
    const torch::NoGradGuard no_grad;
    return {net->bias.clone(), net->weight.clone()};
  }

  Net net;
  std::unique_ptr<torch::optim::Optimizer> optimizer;
  std::unique_ptr<ExponentialMovingAverage> average;
};

void ExpectSame(const std::vector<torch::Tensor>& a, const std::vector<torch::Tensor>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].scalar_type(), b[i].scalar_type());
    EXPECT_TRUE(a[i].equal(b[i])) << a[i] << b[i];
  }
}

class MasterParametersTest : public ::testing::TestWithParam<int> {
 protected:
  // For so little several threads wait for each other most of the time.
  void SetUp() override { at::set_num_threads(1); }
  // The parameters of a twin in float32 are the masters, bit by bit, and nothing is lost.
  template <typename Options>
  void ExpectFloat32s(const Options& options) {
    Training narrow(*context_, GetParam(), options);
    Training twin(*context_, 0, options, torch::kFloat);
    narrow.Train(kSteps);
    twin.Train(kSteps);
    ExpectSame(narrow.Masters(), twin.Copies());
    std::vector<torch::Tensor> rounded;
    for (const torch::Tensor& parameter : twin.Copies()) {
      EXPECT_LT(parameter.max().item<double>(), 0.9);
      rounded.push_back(parameter.to(torch::kBFloat16));
    }
    ExpectSame(narrow.Copies(), rounded);
  }

  std::unique_ptr<Context> context_ = *Context::Create();
};

INSTANTIATE_TEST_SUITE_P(Stages, MasterParametersTest, ::testing::Values(0, 1, 2, 3));

TEST_P(MasterParametersTest, LearnFromUpdatesThatBf16Loses) {
  ExpectFloat32s(AdamWOptions(kRate).weight_decay(0));
  ExpectFloat32s(AdamWOptions(kRate).amsgrad(true));
  ExpectFloat32s(SGDOptions(kRate));
  ExpectFloat32s(SGDOptions(kRate / 2).momentum(0.5).nesterov(true));
  // Negative controls, without masters.
  for (const bool adam : {true, false}) {
    Net net;
    net->to(torch::kBFloat16);
    std::unique_ptr<torch::optim::Optimizer> plain;
    if (adam) {
      plain = std::make_unique<torch::optim::AdamW>(net->parameters(),
                                                    AdamWOptions(kRate).weight_decay(0));
    } else {
      plain = std::make_unique<torch::optim::SGD>(net->parameters(), SGDOptions(kRate));
    }
    for (int step = 0; step < kSteps; ++step) {
      plain->zero_grad();
      net->Loss().backward();
      plain->step();
    }
    EXPECT_TRUE((net->weight == 1).all().item<bool>()) << adam;
  }
}

TEST_P(MasterParametersTest, GoOnFromACheckpointOfAnyStageBitByBit) {
  std::string directory = ::testing::TempDir() + "/masters_XXXXXX";
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  const AdamWOptions options = AdamWOptions(kRate);
  Training whole(*context_, GetParam(), options);
  whole.Train(12);
  Training half(*context_, GetParam(), options);
  half.Train(5);
  for (const bool sharded : {true, false}) {
    Checkpointer saving(*context_, half.net.ptr(), *half.optimizer,
                        {.directory = directory, .sharded = sharded});
    ASSERT_TRUE(saving.Save({.step = 5}).ok());
    for (const int stage : {0, 1, 3}) {
      Training resumed(*context_, stage, options);
      resumed.Train(1);  // which the checkpoint undoes
      const auto found =
          Checkpointer(*context_, resumed.net.ptr(), *resumed.optimizer, {.directory = directory})
              .Restore();
      ASSERT_TRUE(found.ok() && found->has_value()) << found.status();
      resumed.Train(7);
      ExpectSame(resumed.Masters(), whole.Masters());
      ExpectSame(resumed.Copies(), whole.Copies());
    }
  }
  std::filesystem::remove_all(directory);
}

TEST_P(MasterParametersTest, AreMadeAnewWhenOthersChangeTheParameters) {
  for (const bool tells : {true, false}) {
    Training training(*context_, GetParam(), SGDOptions(kRate));
    training.Train(3);
    {
      const torch::NoGradGuard no_grad;
      for (torch::Tensor& parameter : training.net->parameters()) parameter.fill_(4);
    }
    if (auto* zero = dynamic_cast<ZeroOptimizer*>(training.optimizer.get()); !tells) {
      // Negative control: nobody says so.
    } else if (zero != nullptr) {
      zero->ParametersChanged();
    } else {
      dynamic_cast<FusedSGD&>(*training.optimizer).ParametersChanged();
    }
    training.Train(1);
    for (const torch::Tensor& master : training.Masters()) {
      EXPECT_EQ((master > 3).all().item<bool>(), tells);
    }
  }
}

TEST(MasterStateTest, BeginsWithTheParametersWhereACheckpointHasNone) {
  Net net;
  net->to(torch::kBFloat16);
  torch::optim::AdamW plain(net->parameters(), AdamWOptions(kRate));
  FusedAdamW fused(net->parameters(), AdamWOptions(kRate));
  net->Loss().backward();
  plain.step();
  ASSERT_TRUE(worker::SetOptimizerState(fused, *worker::GetOptimizerState(plain)).ok());
  EXPECT_FALSE(worker::MasterOf(fused, net->weight).defined());
  fused.step();
  const auto state = *worker::GetOptimizerState(fused);
  for (const auto& [name, tensor] : state) {
    EXPECT_TRUE(tensor.dim() == 0 || tensor.scalar_type() == torch::kFloat) << name;
  }
  EXPECT_LT(worker::MasterOf(fused, net->weight).max().item<double>(), 1);
  EXPECT_EQ(worker::MasterOf(plain, net->weight).defined(), false);
}

// As in a Session of several modules. The average of its parameters is one of the masters.
TEST(MasterStateTest, IsFoundAndDroppedInASetOfOptimizers) {
  Net one;
  Net other;
  std::vector<worker::OptimizerSet::Part> parts;
  for (Net* net : {&one, &other}) {
    (*net)->to(torch::kBFloat16);
    parts.push_back(
        {.name = net == &one ? "one" : "other",
         .optimizer = std::make_unique<FusedAdamW>((*net)->parameters(), AdamWOptions(kRate))});
    (*net)->Loss().backward();
  }
  worker::OptimizerSet set(std::move(parts));
  set.step();
  for (Net* net : {&one, &other}) {
    const torch::Tensor master = worker::MasterOf(set, (*net)->weight);
    ASSERT_TRUE(master.defined());
    EXPECT_EQ(master.scalar_type(), torch::kFloat);
  }
  worker::DropMasters(set);
  EXPECT_FALSE(worker::MasterOf(set, other->weight).defined());
}

TEST(MasterStateTest, StandsLibTorchsOwnArchives) {
  Net net;
  net->to(torch::kBFloat16);
  FusedAdamW saved(net->parameters(), AdamWOptions(kRate));
  net->Loss().backward();
  saved.step();
  std::stringstream stream;
  torch::save(saved, stream);
  FusedAdamW loaded(net->parameters(), AdamWOptions(kRate));
  torch::load(loaded, stream);
  loaded.step();
  const auto state = *worker::GetOptimizerState(loaded);
  EXPECT_EQ(state.at("0.step").item<int64_t>(), 2);
  EXPECT_TRUE(state.contains("0.master_param"));
}

}  // namespace
}  // namespace ddprun::masters_test
