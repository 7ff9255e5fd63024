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

// The recipe is Python's DistributedDataParallel of torch 2.11, which tests compare bit by bit.
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
  // Whether the last forward pass was for a backward pass that averages; Python sends buffers
  // before the next one only then. False after FinishStep, which has sent them.
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
    return last_forward_synchronized && options.broadcast_buffers && !buffers.empty();
  }

  // These throw as LibTorch does.

  // Says what comes now to those who compare the ranks, if anybody does.
  void BeginForward();
  void BeginBackward();

  // After the first backward pass: FAILED_PRECONDITION — a parameter got no gradient. LibTorch says
  // so in the next step, when the optimizer has stepped with gradients that weren't averaged.
  void CheckGradients();

  // `source`'s parameters and buffers become everyone's.
  void BroadcastState(int source) const;
  // `source`'s buffers become everyone's.
  void BroadcastBuffers(int source) const;
  // Tells the ranks that have joined that this one has not, before anything else of a forward pass.
  void NotifyJoinedRanks();
  // Tells them whether this step's backward pass averages.
  void NotifyWhetherAveraged() const;
  // The rank whose buffers count: the highest one that still has inputs.
  int AgreeOnSource(bool candidate) const;
  // What a rank without inputs does until no rank has any.
  void ShadowOthers();
  // One step of another rank, of which this one only sees the collectives.
  void ShadowStep();
};

namespace worker {

bool HasSyncBatchNorm(const torch::nn::Module& module);

}  // namespace worker

using DdpImplementation = DistributedDataParallel::Implementation;

}  // namespace ddprun

#endif  // DDPRUN_WORKER_TORCH_DDP_DISTRIBUTED_DATA_PARALLEL_IMPLEMENTATION_H_
