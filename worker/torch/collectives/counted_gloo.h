#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_COUNTED_GLOO_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_COUNTED_GLOO_H_

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "worker/torch/collectives/counted_collectives.h"
#include "worker/torch/collectives/single_tensor_collectives.h"

namespace ddprun::worker {

// c10d's Gloo, which counts the collectives that the runtime and DDP's reducer call. A collective
// that calls another one counts twice, on all ranks alike.
class CountedGloo : public SingleTensorCollectives<c10d::ProcessGroupGloo>,
                    public CountedCollectives {
 public:
  using SingleTensorCollectives::SingleTensorCollectives;

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    CountOne();
    return ProcessGroupGloo::broadcast(tensors, options);
  }
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    CountOne();
    return ProcessGroupGloo::allreduce(tensors, options);
  }
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) override {
    CountOne();
    return ProcessGroupGloo::allreduce_coalesced(tensors, options);
  }
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    CountOne();
    return ProcessGroupGloo::reduce(tensors, options);
  }
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override {
    CountOne();
    return ProcessGroupGloo::allgather(outputs, inputs, options);
  }
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override {
    CountOne();
    return ProcessGroupGloo::reduce_scatter(outputs, inputs, options);
  }
  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    CountOne();
    return ProcessGroupGloo::barrier(options);
  }

 protected:
  WorkPointer DoAllGatherTensor(at::Tensor& output, at::Tensor& input,
                                const c10d::AllgatherOptions& options) override {
    CountOne();
    return SingleTensorCollectives::DoAllGatherTensor(output, input, options);
  }
  WorkPointer DoReduceScatterTensor(at::Tensor& output, at::Tensor& input,
                                    const c10d::ReduceScatterOptions& options) override {
    CountOne();
    return SingleTensorCollectives::DoReduceScatterTensor(output, input, options);
  }
  WorkPointer DoAllToAllTensor(at::Tensor& output, at::Tensor& input, Sizes& output_sizes,
                               Sizes& input_sizes, const c10d::AllToAllOptions& options) override {
    CountOne();
    return SingleTensorCollectives::DoAllToAllTensor(output, input, output_sizes, input_sizes,
                                                     options);
  }
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_COUNTED_GLOO_H_
