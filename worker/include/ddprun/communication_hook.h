#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_COMMUNICATION_HOOK_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_COMMUNICATION_HOOK_H_

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddprun/group.h"

namespace ddprun {

// A bucket of gradients: this rank's before the hook, the average of all ranks after it.
struct GradientBucket {
  size_t index = 0;      // from 0, in the order in which the buckets of a step are averaged
  bool is_last = false;  // the last bucket of its step
  // [n], floating point, on the context's device: this rank's gradients; the hook leaves the
  // average over all ranks in it.
  torch::Tensor buffer;
  // Views into `buffer`, one a parameter, in the parameter's shape.
  std::vector<torch::Tensor> gradients;
  // By gradient, its parameter's place in DistributedDataParallel::parameters().
  std::vector<size_t> parameters;
};

// A user's way to average gradients: compression, statistics, other topologies.
//
// Unlike Python's hooks this is a plain function that may communicate as often as it likes: every
// DistributedDataParallel runs its hook on a thread and over connections of its own, a bucket at a
// time and in the same order on all ranks, while the backward pass goes on. (Python's hooks chain
// futures, and gloo's two threads may then start collectives in another order on each rank.)
//
//   struct Halved : ddprun::CommunicationHook {
//     std::string name() const override { return "halved"; }
//     absl::Status Average(ddprun::GradientBucket& bucket, ddprun::Group& group) override {
//       bucket.buffer.div_(2 * group.world_size());
//       return group.AllReduceSum(bucket.buffer);
//     }
//   };
//
// Buckets are cut anew after the first step, and after a restart, so that the same index means
// other parameters: keep state by parameter. To save the state, derive from CheckpointedState too.
// Kernels go to the device's default stream.
class CommunicationHook {
 public:
  virtual ~CommunicationHook() = default;

  // The name in DistributedDataParallelStatistics.
  virtual std::string name() const = 0;

  // Replaces the bucket's gradients by their average over all ranks. Autograd doesn't record it.
  // This rank's backward pass throws the error, or the exception.
  // Threads: one, not the training loop's.
  virtual absl::Status Average(GradientBucket& bucket, Group& group) = 0;
};

// LibTorch's own hooks, which need no thread, and give the same bits as in Python.
enum class BuiltInHook {
  kNone,       // the sum of all ranks, divided
  kAllReduce,  // divided first, then added: no overflow with many ranks
  kFloat16,    // as kAllReduce in half the bytes; gradients beyond 65504 become infinite
  kBFloat16,   // as kFloat16, with the range of float and 8 bits of precision
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_COMMUNICATION_HOOK_H_
