#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVE_BACKEND_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVE_BACKEND_H_

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "worker/torch/collectives/collective_queue.h"
#include "worker/torch/collectives/counted_collectives.h"
#include "worker/torch/collectives/single_tensor_collectives.h"

namespace ddprun::worker {

// The base of our own c10d backends: implements c10d's many calls with five, run in order on a
// queue. All work on the CPU and asynchronously: a call's tensors may be used again when its work
// is done. send, recv, gather, scatter and all-to-all aren't supported; c10d's base class throws.
// Threads: as c10d's other backends: any, in the same order on all ranks.
class CollectiveBackend : public SingleTensorCollectives<c10d::Backend>, public CountedCollectives {
 public:
  void setTimeout(std::chrono::milliseconds timeout) override { timeout_ = timeout; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return begun(); }
  // Ends the collectives of all ranks with an error, now and from now on.
  void abort() override { Break("the group was aborted"); }
  void shutdown() override { Break("the group was shut down"); }

  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) override;
  // Other ranks' tensors keep what they held.
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override;
  WorkPointer allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                                  const c10d::AllgatherOptions& options) override;
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override;
  WorkPointer barrier(const c10d::BarrierOptions& options) override;

 protected:
  // One piece of a collective, which owns what it needs. `attempt`, unless unset, is called at most
  // once, before `run`.
  struct Step {
    std::function<bool()> attempt;  // without sleeping; true: done
    std::function<void(std::chrono::milliseconds timeout)> run;
  };
  using Steps = std::vector<Step>;

  CollectiveBackend(int rank, int size, std::chrono::milliseconds timeout)
      : SingleTensorCollectives(rank, size),
        timeout_(timeout),
        queue_(std::make_unique<CollectiveQueue>()) {}

  WorkPointer DoAllGatherTensor(at::Tensor& output, at::Tensor& input,
                                const c10d::AllgatherOptions& options) override;
  WorkPointer DoAllGatherTensors(Tensors& outputs, Tensors& inputs,
                                 const c10d::AllgatherOptions& options) override;
  WorkPointer DoReduceScatterTensor(at::Tensor& output, at::Tensor& input,
                                    const c10d::ReduceScatterOptions& options) override;
  WorkPointer DoReduceScatterTensors(Tensors& outputs, Tensors& inputs,
                                     const c10d::ReduceScatterOptions& options) override;

  virtual Step AllReduce(const at::Tensor& tensor, const c10d::ReduceOp& operation) = 0;
  virtual Step Broadcast(const at::Tensor& tensor, uint32_t root) = 0;
  // `outputs`: one a rank.
  virtual Step AllGather(const at::Tensor& input, const Tensors& outputs) = 0;
  // `inputs`: one a rank.
  virtual Step ReduceScatter(const Tensors& inputs, const at::Tensor& output,
                             const c10d::ReduceOp& operation) = 0;
  virtual Step Barrier() = 0;
  virtual void Break(const std::string& reason) = 0;

  // Fails the queued collectives and waits for the one that runs. Call it in the derived class'
  // destructor, because steps use that class' members. Requires: the collective that runs was made
  // to end.
  void StopQueue() { queue_.reset(); }

 private:
  WorkPointer Submit(c10d::OpType type, Steps steps, Tensors result,
                     std::chrono::milliseconds timeout);
  Tensors BlocksOf(const at::Tensor& whole, const at::Tensor& block) const;
  void CheckOneARank(const Tensors& tensors) const;

  std::chrono::milliseconds timeout_;
  std::unique_ptr<CollectiveQueue> queue_;
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_COLLECTIVE_BACKEND_H_
