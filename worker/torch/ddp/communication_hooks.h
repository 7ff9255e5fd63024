#ifndef DDPRUN_WORKER_TORCH_DDP_COMMUNICATION_HOOKS_H_
#define DDPRUN_WORKER_TORCH_DDP_COMMUNICATION_HOOKS_H_

#include <memory>
#include <torch/csrc/distributed/c10d/comm.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <vector>

#include "absl/status/status.h"
#include "ddprun/communication_hook.h"
#include "ddprun/context.h"
#include "ddprun/distributed_data_parallel.h"

namespace ddprun::worker {

// Runs a user's hook on a thread and a group of its own, a bucket at a time, in the reducer's
// order. The destructor waits for the bucket that is under way.
// Params: parameters: of the reducer, in its order.
std::unique_ptr<c10d::CommHookInterface> MakeThreadedHook(
    std::shared_ptr<CommunicationHook> hook, std::shared_ptr<Group> group,
    const std::vector<torch::Tensor>& parameters);

// Gives the reducer the hook that the options name, if they name one; a collective when it is the
// user's own. Throws as LibTorch does.
// Errors: INVALID_ARGUMENT — both a built-in and an own hook are named. Those of Group::Create.
absl::Status RegisterHook(const DistributedDataParallelOptions& options, Context& context,
                          const std::vector<torch::Tensor>& parameters, c10d::Reducer& reducer,
                          c10d::Logger& logger,
                          const c10::intrusive_ptr<c10d::ProcessGroup>& group);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_DDP_COMMUNICATION_HOOKS_H_
