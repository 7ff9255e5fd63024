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

// Separate connections between all or some of the workers, over the context's backend. Collectives
// over one set of connections must be called in the same order on every rank, so a thread beside
// the training loop needs a group of its own.
//
// Collectives are called by all ranks of the group, in the same order. Errors of all: UNAVAILABLE,
// with a text that starts with "PeerError: " — another worker is gone. INTERNAL — LibTorch refused.
// Threads: one at a time. Requires: the context outlives it.
class Group {
 public:
  // Connects all workers; a collective itself.
  static absl::StatusOr<std::shared_ptr<Group>> Create(Context& context);
  // Connects only these ranks of the context. Each of them calls this with the same list, others
  // don't call it. A rank's number in the group is its place in the list, and `source` of a
  // broadcast is such a number. Ranks that are in two groups make both in the same order.
  // Errors: INVALID_ARGUMENT — the list is empty, has a rank twice or an unknown one, or lacks this
  // worker.
  static absl::StatusOr<std::shared_ptr<Group>> Create(Context& context,
                                                       const std::vector<uint32_t>& ranks);
  ~Group();
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;

  uint32_t rank() const;  // in this group
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
