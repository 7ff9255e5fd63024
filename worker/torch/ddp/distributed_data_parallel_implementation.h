#ifndef DDPRUN_WORKER_TORCH_DDP_DISTRIBUTED_DATA_PARALLEL_IMPLEMENTATION_H_
#define DDPRUN_WORKER_TORCH_DDP_DISTRIBUTED_DATA_PARALLEL_IMPLEMENTATION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/logger.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>
#include <unordered_map>
#include <vector>

#include "ddprun/distributed_data_parallel.h"
#include "worker/torch/ddp/bucket_order.h"
#include "worker/torch/store/collective_check.h"

namespace ddprun {

// Follows Python's DistributedDataParallel of torch 2.11; tests compare both bit by bit.
struct DistributedDataParallel::Implementation {
  std::shared_ptr<torch::nn::Module> module;
  torch::Device device = torch::kCPU;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  DistributedDataParallelOptions options;
  std::vector<torch::Tensor> parameters;
  std::vector<torch::Tensor> buffers;
  std::unordered_map<size_t, std::string> names;
  std::shared_ptr<c10d::Reducer> reducer;
  std::shared_ptr<c10d::Logger> logger;
  worker::BucketOrder bucket_order{*this};
  bool has_finished_step = false;
  bool synchronize = true;  // off inside NoSync
  // Whether the last forward pass was for a backward pass that averages: only then, as in Python,
  // buffers are sent before the next forward pass. False after FinishStep, which has sent them.
  bool last_forward_synchronized = true;
  bool static_graph_callback_queued = false;
  bool gradients_checked = false;  // one backward pass that averages has been looked at
  bool joining = false;            // inside Join
  std::shared_ptr<worker::CollectiveCheck> check;  // null: nothing is compared
  int64_t forward_passes = 0;                      // begun
  JoinOptions join_options;

  bool NeedsSink() const {
    if (options.static_graph) return !static_graph_callback_queued;
    return options.find_unused_parameters || (!gradients_checked && last_forward_synchronized);
  }
  bool NeedsBuffers() const {
    return last_forward_synchronized && options.broadcast_buffers &&
           !options.broadcast_buffers_once_a_step && !buffers.empty();
  }

  // All methods below throw as LibTorch does.

  // Announce the pass that begins to `check`, if there is one.
  void BeginForward();
  void BeginBackward();

  // Called after the first backward pass: FAILED_PRECONDITION — a parameter got no gradient, and
  // another one did.
  // LibTorch reports that only in the next step, after the optimizer has stepped with gradients
  // that weren't averaged.
  void CheckGradients();

  // Copies `source`'s parameters and buffers to all ranks.
  void BroadcastState(int source) const;
  // Copies `source`'s buffers to all ranks.
  void BroadcastBuffers(int source) const;
  // Notifies the ranks without inputs that this one has some, before all else of a forward pass.
  void NotifyJoinedRanks();
  // Notifies the ranks without inputs whether this step's backward pass averages.
  void NotifyWhetherAveraged() const;
  // The rank that sends its buffers: the highest one that still has inputs.
  int AgreeOnSource(bool candidate) const;
  // What a rank without inputs does until no rank has any.
  void ShadowOthers();
  // Takes part in the collectives of another rank's step.
  void ShadowStep();
};

namespace worker {

bool HasSyncBatchNorm(const torch::nn::Module& module);

}  // namespace worker

using DdpImplementation = DistributedDataParallel::Implementation;

}  // namespace ddprun

#endif  // DDPRUN_WORKER_TORCH_DDP_DISTRIBUTED_DATA_PARALLEL_IMPLEMENTATION_H_
