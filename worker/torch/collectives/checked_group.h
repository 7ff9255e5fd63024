#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_CHECKED_GROUP_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_CHECKED_GROUP_H_

#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include "absl/status/statusor.h"
#include "worker/torch/collectives/process_group.h"
#include "worker/torch/store/collective_check.h"

namespace ddprun::worker {

// Wraps a group so that each collective is checked first.
c10::intrusive_ptr<c10d::ProcessGroup> CheckedGroup(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const std::shared_ptr<CollectiveCheck>& check);

// Under TORCH_DISTRIBUTED_DEBUG=DETAIL wraps `group` as Python does: collectives are compared over
// a second group, of Gloo, before they run, so that a mismatch, or a rank that doesn't come within
// the collectives' timeout, is an error that names the ranks. Else returns `group`. A collective
// under DETAIL. Throws as LibTorch does. Errors: those of CreateProcessGroup. INTERNAL —
// TORCH_DISTRIBUTED_DEBUG is none of OFF, INFO and DETAIL.
absl::StatusOr<c10::intrusive_ptr<c10d::ProcessGroup>> DebugGroup(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, const ProcessGroupPlan& plan);

// The variables of this environment that change how workers communicate (NCCL_*, TORCH_NCCL_*,
// GLOO_*, TORCH_DISTRIBUTED_DEBUG, TORCH_CPP_LOG_LEVEL), as "NAME=value …", sorted, without those
// that launchers set; "" = none.
std::string CommunicationVariables();

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_CHECKED_GROUP_H_
