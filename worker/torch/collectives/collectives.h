#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVES_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVES_H_

#include <torch/types.h>

#include <cstdint>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// c10d's collectives for Context and Group: they return a status, and are done when they return, on
// a GPU, too.
// Errors of all: UNAVAILABLE, "PeerError: …" — a peer is gone. INTERNAL — LibTorch refused.
namespace ddprun::worker {

// Waits until a GPU has done all work so far, and returns whether the group was whole until then;
// otherwise the results are garbage. Needed because a GPU's collectives run asynchronously, and end
// without an error when the group is aborted. Does nothing for a CPU.
absl::Status AwaitResults(c10d::ProcessGroup& group, torch::Device device);

absl::Status AllReduce(c10d::ProcessGroup& group, torch::Tensor& tensor,
                       const c10d::ReduceOp& operation);
absl::Status AllReduceSum(c10d::ProcessGroup& group, torch::Tensor& tensor);
absl::Status Broadcast(c10d::ProcessGroup& group, torch::Tensor& tensor, uint32_t source);
absl::StatusOr<std::vector<torch::Tensor>> AllGather(c10d::ProcessGroup& group,
                                                     const torch::Tensor& tensor);
absl::Status Barrier(c10d::ProcessGroup& group, torch::Device device);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVES_H_
