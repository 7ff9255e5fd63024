#ifndef DDPRUN_WORKER_TORCH_DDP_BUCKET_ORDER_H_
#define DDPRUN_WORKER_TORCH_DDP_BUCKET_ORDER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/checkpointed_state.h"
#include "ddprun/distributed_data_parallel.h"

namespace ddprun::worker {

// Which parameters' gradients share a bucket, and where they lie in it. Two things that a reducer
// does to a gradient depend on the reducer's past, and change the last bits of an average:
//
// 1. A new reducer has one bucket, in the reverse order of the parameters. After its first backward
//    pass it cuts others, in the order in which gradients came. A ring (Gloo, NCCL, the leaders of
//    several hosts) adds up an element in an order of ranks that follows its place in the bucket:
//    (a + b) + c here, (b + c) + a there. In shared memory the order is that of the ranks.
// 2. With gradient_as_bucket_view a gradient that is a view of its bucket is divided by the number
//    of ranks, g / 3. A gradient that isn't a view, because the last step left none, is multiplied
//    by the inverse, g * (1 / 3).
//
// So a process with a new reducer would compute other bits than one with an old reducer. With this
// state the new reducer begins where the old one was. The alternative, sums that don't depend on
// the place, would need all gradients on all ranks: two to three times the time of Gloo's
// all-reduce, and not possible with NCCL.
class BucketOrder : public CheckpointedState {
 public:
  // `ddp` outlives this.
  explicit BucketOrder(DistributedDataParallel::Implementation& ddp) : ddp_(ddp) {}

  Tensors SaveState() const override;
  absl::Status RestoreState(const Tensors& state) override;

 private:
  // The options on which the order depends; with other options it begins anew.
  std::vector<int64_t> Options() const;

  DistributedDataParallel::Implementation& ddp_;
};

// Buckets of parameter numbers, from all numbers in their order and each bucket's count. Pure.
// Errors: FAILED_PRECONDITION — a parameter of 0 to `parameters` - 1 is missing or comes twice, or
// a bucket is empty.
absl::StatusOr<std::vector<std::vector<size_t>>> CutBuckets(const std::vector<int64_t>& order,
                                                            const std::vector<int64_t>& counts,
                                                            size_t parameters);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_DDP_BUCKET_ORDER_H_
