// libddprun_cuda.so: FlatAdamW on NVIDIA GPUs. A plug-in, so that CPU workers load no CUDA.
#include "worker/cuda/flat_adamw.h"

#include <cuda_runtime.h>

#include "worker/cuda/adamw_math.h"

namespace ddprun::worker::cuda {
namespace {

constexpr unsigned kThreads = 256;  // of a block; a power of two, as the sum halves them
// Blocks enough to fill the largest GPU; further elements are reached in a loop.
constexpr unsigned kMostBlocks = 1024;

unsigned BlocksFor(uint64_t count) {
  const uint64_t blocks = (count + kThreads - 1) / kThreads;
  return blocks < kMostBlocks ? static_cast<unsigned>(blocks) : kMostBlocks;
}

__device__ uint64_t FirstElement() {
  return static_cast<uint64_t>(blockIdx.x) * kThreads + threadIdx.x;
}

__device__ uint64_t Stride() { return static_cast<uint64_t>(gridDim.x) * kThreads; }

__global__ void AddSquaresKernel(const float* gradients, uint64_t count, double inverse_scale,
                                 double* sum) {
  __shared__ double partial[kThreads];
  double added = 0;
  for (uint64_t i = FirstElement(); i < count; i += Stride()) {
    const double gradient = gradients[i] * inverse_scale;
    added += gradient * gradient;
  }
  partial[threadIdx.x] = added;
  __syncthreads();
  for (unsigned half = kThreads / 2; half > 0; half /= 2) {
    if (threadIdx.x < half) partial[threadIdx.x] += partial[threadIdx.x + half];
    __syncthreads();
  }
  if (threadIdx.x == 0) atomicAdd(sum, partial[0]);
}

__global__ void UpdateKernel(FlatShard shard, AdamWStep step, const double* sum_of_squares) {
  __shared__ AdamWFactors factors;
  const double sum = *sum_of_squares;
  if (!isfinite(sum)) return;
  if (threadIdx.x == 0) factors = FactorsOf(step, sum);
  __syncthreads();
  for (uint64_t i = FirstElement(); i < shard.count; i += Stride()) {
    UpdateElement(factors, shard.gradients[i], shard.parameters[i], shard.exp_avg[i],
                  shard.exp_avg_sq[i]);
  }
}

const char* LaunchError() {
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

const char* AddSquares(const float* gradients, uint64_t count, double inverse_scale, double* sum,
                       void* stream) {
  if (count == 0) return nullptr;
  AddSquaresKernel<<<BlocksFor(count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      gradients, count, inverse_scale, sum);
  return LaunchError();
}

const char* Update(const FlatShard& shard, const AdamWStep& step, const double* sum_of_squares,
                   void* stream) {
  if (shard.count == 0) return nullptr;
  UpdateKernel<<<BlocksFor(shard.count), kThreads, 0, static_cast<cudaStream_t>(stream)>>>(
      shard, step, sum_of_squares);
  return LaunchError();
}

constexpr FlatAdamW kFunctions = {AddSquares, Update};

}  // namespace
}  // namespace ddprun::worker::cuda

extern "C" __attribute__((visibility("default"))) const ddprun::worker::cuda::FlatAdamW*
ddprun_cuda_flat_adamw() {
  return &ddprun::worker::cuda::kFunctions;
}
