#ifndef DDPRUN_WORKER_CUDA_FLAT_ADAMW_H_
#define DDPRUN_WORKER_CUDA_FLAT_ADAMW_H_

#include <cstdint>

// AdamW over a flat shard in two passes: one over the gradients for their norm, one that unscales,
// clips and updates. The norm stays on the device, so that clipping doesn't wait for the host.
// No optimizer of worker/torch calls this. Independent of LibTorch. Threads: any, each on arrays
// and a stream of its own.
namespace ddprun::worker::cuda {

// Arrays of `count` float32 on one device; all may be unaligned parts of larger ones.
struct FlatShard {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  float* exp_avg = nullptr;
  float* exp_avg_sq = nullptr;
  uint64_t count = 0;
};

struct AdamWStep {
  double learning_rate = 1e-3;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double weight_decay = 0.01;  // decoupled
  uint64_t step = 1;           // of the state, this one included
  double inverse_scale = 1;    // gradients are multiplied by it: 1 / the loss scale
  double max_norm = 0;         // of all ranks' unscaled gradients together; 0 = not clipped
};

// One device's functions. Each returns null, or an error text that lives as long as the library.
// `stream`: a cudaStream_t, on which the work is only enqueued; unused on the CPU.
struct FlatAdamW {
  // Adds the squares of the unscaled gradients to *sum, which is on the device as well. If a
  // gradient isn't finite, *sum becomes infinite or NaN.
  const char* (*add_squares)(const float* gradients, uint64_t count, double inverse_scale,
                             double* sum, void* stream) = nullptr;
  // Updates parameters and state. `sum_of_squares`: over all shards of all ranks. If it isn't
  // finite, the step is left out, as in fp16 training when the loss scale was too large.
  // Source: Loshchilov and Hutter, "Decoupled Weight Decay Regularization" (2019), algorithm 2; in
  // single precision within 1e-6 of it over 20 steps.
  const char* (*update)(const FlatShard& shard, const AdamWStep& step, const double* sum_of_squares,
                        void* stream) = nullptr;
};

// The functions on the CPU, for tests and for state in host memory.
const FlatAdamW& CpuFlatAdamW();

// The name under which libddprun_cuda.so exports a function that returns its const FlatAdamW*.
inline constexpr const char* kCudaFlatAdamWSymbol = "ddprun_cuda_flat_adamw";

}  // namespace ddprun::worker::cuda

#endif  // DDPRUN_WORKER_CUDA_FLAT_ADAMW_H_
