#include "worker/torch/checkpoint/background_write.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/types.h>

#include <atomic>
#include <latch>
#include <stdexcept>
#include <stop_token>
#include <thread>

namespace ddprun::worker {
namespace {

using ::testing::HasSubstr;

TEST(TensorCopies, AreAsTheTensorsWere) {
  const torch::Tensor weight = torch::ones({2, 3}).set_requires_grad(true);
  const torch::Tensor steps = torch::full({}, 7, torch::kLong);
  TensorCopies copies;
  const CheckpointTensors taken = copies.Take({{"weight", weight}, {"steps", steps}});
  weight.detach().zero_();
  steps.zero_();
  EXPECT_TRUE(taken.at("weight").equal(torch::ones({2, 3})));
  EXPECT_FALSE(taken.at("weight").requires_grad());
  EXPECT_EQ(taken.at("steps").item<int64_t>(), 7);
}

TEST(TensorCopies, OfAPartOfATensorAreContiguous) {
  const torch::Tensor whole = torch::arange(6).view({2, 3});
  TensorCopies copies;
  const CheckpointTensors taken = copies.Take({{"column", whole.select(1, 1)}});
  EXPECT_TRUE(taken.at("column").is_contiguous());
  EXPECT_TRUE(taken.at("column").equal(torch::tensor({1, 4})));
}

TEST(TensorCopies, UseTheirMemoryAgainWhereItFits) {
  TensorCopies copies;
  const auto at = [&](const torch::Tensor& tensor) {
    return copies.Take({{"a", tensor}}).at("a").const_data_ptr();
  };
  const void* first = at(torch::ones({1000}));
  EXPECT_EQ(at(torch::zeros({1000})), first);
  EXPECT_EQ(copies.Take({{"a", torch::ones({10})}}).at("a").sizes(), torch::IntArrayRef({10}));
  EXPECT_EQ(copies.Take({{"a", torch::ones({10}, torch::kInt)}}).at("a").scalar_type(),
            torch::kInt);
}

// Whether by memcpy(3) or, where bytes aren't the values, by an operator.
TEST(CopyTensor, TakesValuesAndCountsAsAChange) {
  const torch::Tensor numbers = torch::arange(6, torch::kFloat).view({2, 3});
  for (const torch::Tensor& from :
       {numbers, numbers.t().contiguous().t(), numbers.to(torch::kDouble)}) {
    const torch::Tensor to = torch::zeros({2, 3});
    const int64_t before = to._version();
    CopyTensor(from, to);
    EXPECT_TRUE(to.equal(numbers)) << from.dtype() << " " << from.strides();
    EXPECT_GT(to._version(), before) << from.dtype() << " " << from.strides();
  }
}

TEST(BackgroundWrite, IsWaitedForAndToldOnce) {
  BackgroundWrite write;
  EXPECT_FALSE(write.is_open());
  EXPECT_TRUE(write.Finish().ok()) << "there is none";
  write.Start([] { return absl::DataLossError("no room"); });
  EXPECT_TRUE(write.is_open());
  EXPECT_EQ(write.Finish(), absl::DataLossError("no room"));
  EXPECT_FALSE(write.is_open());
  EXPECT_TRUE(write.Finish().ok());
  write.Start([] { return absl::OkStatus(); });
  EXPECT_TRUE(write.Finish().ok());
}

TEST(BackgroundWrite, WhatItThrowsIsAnError) {
  BackgroundWrite write;
  write.Start([]() -> absl::Status { throw std::runtime_error("the store is gone"); });
  EXPECT_THAT(write.Finish().message(), HasSubstr("the store is gone"));
}

// A caller that may not wait for the disk leaves the wait to a later one.
TEST(BackgroundWrite, IsNotWaitedForWhereToStopIsRequested) {
  std::latch disk(1);
  std::stop_source stop;
  BackgroundWrite write;
  EXPECT_TRUE(write.Await(stop.get_token())) << "there is none";
  write.Start([&] {
    disk.wait();
    return absl::DataLossError("no room");
  });
  std::jthread end([&] { stop.request_stop(); });
  EXPECT_FALSE(write.Await(stop.get_token()));
  EXPECT_TRUE(write.is_open());
  disk.count_down();
  EXPECT_TRUE(write.Await(std::stop_token()));
  EXPECT_EQ(write.Finish(), absl::DataLossError("no room"));
}

TEST(BackgroundWrite, EndsBeforeItsOwner) {
  std::atomic<bool> done = false;
  {
    BackgroundWrite write;
    write.Start([&] {
      done = true;
      return absl::OkStatus();
    });
  }
  EXPECT_TRUE(done);
}

TEST(BackgroundWriteDeathTest, TwoAtOnce) {
  BackgroundWrite write;
  write.Start([] { return absl::OkStatus(); });
  EXPECT_DEATH(write.Start([] { return absl::OkStatus(); }), "two writes at once");
}

}  // namespace
}  // namespace ddprun::worker
