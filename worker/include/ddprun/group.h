#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_GROUP_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_GROUP_H_

#include <torch/types.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/context.h"

namespace ddprun {

// Connections of their own between all workers, over the context's backend. Collectives of one
// connection must come in the same order on every rank; a thread beside the training loop therefore
// needs a group for itself.
//
// Collectives are called by all ranks, in the same order. Errors of all: UNAVAILABLE, with a text
// that starts with "PeerError: " — another worker is gone. INTERNAL — LibTorch refused.
// Threads: one at a time. Requires: the context outlives it.
class Group {
 public:
  // Connects; a collective itself.
  static absl::StatusOr<std::shared_ptr<Group>> Create(Context& context);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  uint32_t rank() const;
  uint32_t world_size() const;

  // Adds `tensor` over all ranks, in place. Requires: contiguous, on the context's device.
  absl::Status AllReduceSum(torch::Tensor& tensor);
  // Copies rank `source`'s tensor to all, in place. Requires: as above, the same size everywhere.
  absl::Status Broadcast(torch::Tensor& tensor, uint32_t source);
  // Every rank's tensor, by rank. Requires: the same shape and type everywhere.
  absl::StatusOr<std::vector<torch::Tensor>> AllGather(const torch::Tensor& tensor);

 private:
  struct Implementation;

  explicit Group(std::unique_ptr<Implementation> implementation);

  std::unique_ptr<Implementation> implementation_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_GROUP_H_
