#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_CHECKED_GROUP_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_CHECKED_GROUP_H_

#include <memory>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "worker/torch/store/collective_check.h"

namespace ddprun::worker {

// Wraps a group so that each collective is checked first.
c10::intrusive_ptr<c10d::ProcessGroup> CheckedGroup(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const std::shared_ptr<CollectiveCheck>& check);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_CHECKED_GROUP_H_
