#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_CHECKED_GROUP_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_CHECKED_GROUP_H_

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "worker/torch/store/collective_check.h"

namespace ddprun::worker {

// What a collective is called: "all-reduce", "broadcast from rank" 2.
struct CollectiveName {
  const char* operation;
  int64_t root = -1;  // < 0 = it has none
};
// `tensors`: this rank's; of an all-to-all or a barrier none.
using BeforeCollective = std::function<void(const CollectiveName&, const std::vector<at::Tensor>&)>;

// The same group, which calls `before` on the calling thread at the beginning of each collective;
// what `before` throws, the collective throws. Messages of two ranks are none.
c10::intrusive_ptr<c10d::ProcessGroup> WatchedGroup(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, const BeforeCollective& before);

// The same group with a check before each collective: as Python's ProcessGroupWrapper, but over the
// store, so that it also finds ranks that come to no collective at all.
c10::intrusive_ptr<c10d::ProcessGroup> CheckedGroup(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const std::shared_ptr<CollectiveCheck>& check);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_CHECKED_GROUP_H_
