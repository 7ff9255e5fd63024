#include <cuda_runtime.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

#include "tests/support/trees.h"
#include "worker/cuda/plugin.h"

namespace ddprun::worker::cuda {
namespace {

using ::testing::FloatNear;
using ::testing::Pointwise;

// Memory that the GPU and the test both see.
template <typename T>
class Managed {
 public:
  explicit Managed(size_t count) : count_(count) {
    if (cudaMallocManaged(&data_, count * sizeof(T)) != cudaSuccess) std::abort();
    for (size_t i = 0; i < count; ++i) data_[i] = T{};
  }
  ~Managed() { cudaFree(data_); }
  Managed(const Managed&) = delete;
  Managed& operator=(const Managed&) = delete;

  T* data() { return data_; }
  T& operator[](size_t i) { return data_[i]; }
  std::vector<T> ToVector() const { return {data_, data_ + count_}; }

 private:
  T* data_ = nullptr;
  size_t count_;
};

class FlatAdamWOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    // Unless it is named: scripts/gpu_check takes this program elsewhere.
    setenv("DDPRUN_CUDA_PLUGIN", InBuildTree("bin/libddprun_cuda.so").c_str(), 0);
    const auto loaded = LoadCudaFlatAdamW();
    ASSERT_TRUE(loaded.ok()) << loaded.status();
    gpu_ = *loaded;
    int devices = 0;
    const cudaError_t error = cudaGetDeviceCount(&devices);
    if (error != cudaSuccess || devices == 0) {
      GTEST_SKIP() << "no GPU: " << cudaGetErrorString(error) << "; the kernels were only loaded";
    }
  }

  FlatAdamW gpu_;
};

struct GpuShard {
  explicit GpuShard(size_t size)
      : count(size), parameters(size), gradients(size), exp_avg(size), exp_avg_sq(size), sum(1) {
    for (size_t i = 0; i < size; ++i) {
      parameters[i] = std::sin(static_cast<float>(i));
      gradients[i] = 64 * std::cos(static_cast<float>(3 * i));
    }
  }
  void Train(const FlatAdamW& functions, AdamWStep step, int steps) {
    for (int t = 1; t <= steps; ++t) {
      step.step = static_cast<uint64_t>(t);
      sum[0] = 0;
      ASSERT_STREQ(
          functions.add_squares(gradients.data(), count, step.inverse_scale, sum.data(), nullptr),
          nullptr);
      ASSERT_STREQ(functions.update({parameters.data(), gradients.data(), exp_avg.data(),
                                     exp_avg_sq.data(), count},
                                    step, sum.data(), nullptr),
                   nullptr);
      ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    }
  }
  size_t count;
  Managed<float> parameters, gradients, exp_avg, exp_avg_sq;
  Managed<double> sum;
};

// More elements than one pass of all blocks covers, and no multiple of a block.
constexpr size_t kCount = (1 << 20) + 17;
constexpr AdamWStep kStep = {.learning_rate = 0.01, .inverse_scale = 1.0 / 64, .max_norm = 100};

constexpr int kSteps = 20;
// Parameters stay below 2, where a unit in the last place is 2^-23. In a step each machine rounds
// the decayed parameter, the update and their difference, or two of them at once: at most 1.5
// units, and so 3 between the two. What an update (at most the learning rate, about) is rounded by
// is a hundred times less, and in the fourth unit.
constexpr float kBound = kSteps * 4.0F / (1 << 23);

TEST_F(FlatAdamWOnGpu, AgreesWithTheCpu) {
  GpuShard on_gpu(kCount);
  GpuShard on_cpu(kCount);
  on_gpu.Train(gpu_, kStep, kSteps);
  on_cpu.Train(CpuFlatAdamW(), kStep, kSteps);
  EXPECT_NEAR(on_gpu.sum[0], on_cpu.sum[0], 1e-9 * on_cpu.sum[0]);
  EXPECT_THAT(on_gpu.parameters.ToVector(),
              Pointwise(FloatNear(kBound), on_cpu.parameters.ToVector()));
  EXPECT_THAT(on_gpu.exp_avg_sq.ToVector(),
              Pointwise(FloatNear(1e-6F), on_cpu.exp_avg_sq.ToVector()));
}

TEST_F(FlatAdamWOnGpu, LeavesAStepOutThatOverflowed) {
  GpuShard shard(kCount);
  shard.gradients[kCount - 1] = std::numeric_limits<float>::infinity();
  const std::vector<float> before = shard.parameters.ToVector();
  shard.Train(gpu_, kStep, 1);
  EXPECT_EQ(shard.parameters.ToVector(), before);
}

}  // namespace
}  // namespace ddprun::worker::cuda
