#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_COMMUNICATION_HOOK_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_COMMUNICATION_HOOK_H_

#include <torch/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "ddprun/group.h"

namespace ddprun {

// A bucket of gradients, on its way from this rank's to everyone's average.
struct GradientBucket {
  size_t index = 0;      // from 0, in the order in which the buckets of a step are averaged
  bool is_last = false;  // of its step
  // [n], floating point, on the context's device: this rank's gradients; the hook leaves the
  // average over all ranks in it.
  torch::Tensor buffer;
  // Views into `buffer`, one a parameter, in the parameter's shape.
  std::vector<torch::Tensor> gradients;
  // Which parameter each gradient is of: its place in DistributedDataParallel::parameters().
  std::vector<size_t> parameters;
};

// How gradients are averaged, written by the user: compression, statistics, other topologies.
//
// Unlike Python's hooks it is a plain function that may communicate as often as it likes: every
// DistributedDataParallel runs it on a thread and over connections of its own, a bucket at a time
// and in the same order on all ranks, while the backward pass goes on. (Python's hooks chain
// futures, on which gloo's two threads may start collectives in another order on each rank.)
//
//   struct Halved : ddprun::CommunicationHook {
//     std::string name() const override { return "halved"; }
//     absl::Status Average(ddprun::GradientBucket& bucket, ddprun::Group& group) override {
//       bucket.buffer.div_(2 * group.world_size());
//       return group.AllReduceSum(bucket.buffer);
//     }
//   };
//
// Buckets are cut anew after the first step, and after a restart, so that a bucket's index stands
// for other parameters then: keep state by parameter. To save it, derive from CheckpointedState
// too. Kernels go to the device's default stream.
class CommunicationHook {
 public:
  virtual ~CommunicationHook() = default;

  // For the statistics.
  virtual std::string name() const = 0;

  // Replaces the bucket's gradients by their average over all ranks. Gradients are not recorded.
  // An error, and what it throws, comes out of this rank's backward pass.
  // Threads: one, not the training loop's.
  virtual absl::Status Average(GradientBucket& bucket, Group& group) = 0;
};

// The hooks that LibTorch has, which need no thread: they run as Python's do, bit by bit.
enum class BuiltInHook {
  kNone,       // the sum of all ranks, divided
  kAllReduce,  // divided first, then added: no overflow with many ranks
  kFloat16,    // the same in half the bytes; gradients beyond 65504 become infinite
  kBFloat16,   // the same with the range of float and 8 bits of precision
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_COMMUNICATION_HOOK_H_
