// Weights files; tests/worker/module_test.cc exchanges them with Python.
#include "ddprun/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/nn/modules.h>
#include <torch/serialize.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "ddprun/parameters.h"

namespace ddprun {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using torch::nn::BatchNorm1d;
using torch::nn::Linear;
using torch::nn::Sequential;

class WeightsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/weights_XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string path() const { return directory_ + "/model.safetensors"; }

  // Writes a file as other programs do: no checksum, no metadata, data at any place.
  void WriteForeign(const std::string& header, const std::string& data) const {
    std::string length(8, '\0');
    length[0] = static_cast<char>(header.size());
    std::ofstream(path(), std::ios::binary) << length << header << data;
  }
  template <typename Module>
  std::string ErrorOf(Module& module, const LoadWeightsOptions& options = {}) const {
    return std::string(LoadWeights(*module, path(), options).status().message());
  }

  std::string directory_;
};

TEST_F(WeightsTest, RoundTripByName) {
  Sequential written(Linear(3, 2), BatchNorm1d(2));
  Sequential read(Linear(3, 2), BatchNorm1d(2));
  written->forward(torch::randn({4, 3}));  // moves the statistics
  ASSERT_TRUE(SaveWeights(*written, path()).ok());
  EXPECT_FALSE(read->parameters()[0].equal(written->parameters()[0]));  // negative control
  const absl::StatusOr<LoadedWeights> loaded = LoadWeights(*read, path());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->missing, IsEmpty());
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_TRUE(read->parameters()[i].equal(written->parameters()[i]));
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_TRUE(read->buffers()[i].equal(written->buffers()[i]));
}

TEST_F(WeightsTest, WhatTorchSaveWroteIsTaken) {
  Sequential written(Linear(3, 2), BatchNorm1d(2));
  written->forward(torch::randn({4, 3}));
  torch::save(written, path());
  Sequential read(Linear(3, 2), BatchNorm1d(2));
  absl::StatusOr<LoadedWeights> loaded = LoadWeights(*read, path());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(read->parameters()[0].equal(written->parameters()[0]));
  EXPECT_TRUE(read->buffers()[0].equal(written->buffers()[0]));

  // The dictionary is what Python's torch.save writes for a state_dict.
  c10::Dict<std::string, torch::Tensor> tensors;
  tensors.insert("weight", torch::full({2, 3}, 5.0));
  tensors.insert("bias", torch::full({2}, 7.0));
  std::vector<char> bytes = torch::jit::pickle_save(tensors);
  std::ofstream(path(), std::ios::binary).write(bytes.data(), static_cast<int64_t>(bytes.size()));
  Linear layer(3, 2);
  loaded = LoadWeights(*layer, path());
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_TRUE(layer->weight.equal(torch::full({2, 3}, 5.0)));

  bytes = torch::jit::pickle_save(c10::IValue(int64_t{3}));
  std::ofstream(path(), std::ios::binary).write(bytes.data(), static_cast<int64_t>(bytes.size()));
  EXPECT_THAT(ErrorOf(layer), HasSubstr("save_file("));
}

TEST_F(WeightsTest, OthersFilesAndTypesAreTaken) {
  // -2 as F16, then 3 as F64, which so lies where no double may.
  WriteForeign(R"({"weight":{"dtype":"F64","shape":[1,1],"data_offsets":[2,10]},)"
               R"("bias":{"dtype":"F16","shape":[1],"data_offsets":[0,2]}})",
               std::string("\x00\xc0", 2) + std::string("\x00\x00\x00\x00\x00\x00\x08\x40", 8));
  Linear layer(1, 1);
  const absl::Status status = LoadWeights(*layer, path()).status();
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(layer->weight.item<float>(), 3);
  EXPECT_EQ(layer->bias.item<float>(), -2);
  EXPECT_EQ(layer->bias.scalar_type(), torch::kFloat);
}

TEST_F(WeightsTest, WhatDoesntFitIsNamedAndNothingChanges) {
  Sequential written(Linear(3, 2));
  ASSERT_TRUE(SaveWeights(*written, path()).ok());
  Sequential more(Linear(3, 2), Linear(2, 2));
  const torch::Tensor before = more->parameters()[0].detach().clone();
  EXPECT_THAT(ErrorOf(more), HasSubstr("there is no '1.bias', '1.weight', which the module has"));
  EXPECT_THAT(ErrorOf(more), HasSubstr("weights '" + path() + "': "));
  EXPECT_TRUE(more->parameters()[0].equal(before));
  Sequential less(Linear(torch::nn::LinearOptions(3, 2).bias(false)));
  EXPECT_THAT(ErrorOf(less), HasSubstr("the module has no '0.bias', which is there"));
  Sequential wider(Linear(4, 2));
  EXPECT_THAT(ErrorOf(wider, {.strict = false}),
              HasSubstr("'0.weight' has the shape [2, 3], the module's [2, 4]"));
  const absl::StatusOr<LoadedWeights> loaded = LoadWeights(*more, path(), {.strict = false});
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_THAT(loaded->missing, ElementsAre("1.bias", "1.weight"));
  EXPECT_TRUE(more->parameters()[0].equal(written->parameters()[0]));
}

TEST_F(WeightsTest, APrefixPicksTheNames) {
  WriteForeign(R"({"model.bias":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
               R"("other":{"dtype":"U8","shape":[],"data_offsets":[1,2]}})",
               "\x05\x01");
  Linear layer(1, 1);
  EXPECT_THAT(ErrorOf(layer, {.prefix = "model."}), HasSubstr("there is no 'weight'"));
  ASSERT_TRUE(LoadWeights(*layer, path(), {.strict = false, .prefix = "model."}).ok());
  EXPECT_EQ(layer->bias.item<float>(), 5);
}

TEST_F(WeightsTest, DamageIsNoticed) {
  Linear layer(3, 2);
  ASSERT_TRUE(SaveWeights(*layer, path()).ok());
  {
    std::fstream file(path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-1, std::ios::end);
    file.put('x');
  }
  EXPECT_THAT(ErrorOf(layer), HasSubstr("damaged or cut short: wrong checksum"));
  std::filesystem::resize_file(path(), 50);
  EXPECT_EQ(LoadWeights(*layer, path()).status().code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(LoadWeights(*layer, path() + "x").status().code(), absl::StatusCode::kNotFound);
}

}  // namespace
}  // namespace ddprun
