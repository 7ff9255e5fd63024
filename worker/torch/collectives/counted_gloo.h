#ifndef DDPRUN_WORKER_TORCH_COLLECTIVES_COUNTED_GLOO_H_
#define DDPRUN_WORKER_TORCH_COLLECTIVES_COUNTED_GLOO_H_

#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <vector>

#include "worker/torch/collectives/counted_collectives.h"

namespace ddprun::worker {

// c10d's Gloo, which counts the collectives that the runtime and DDP's reducer call. A collective
// that calls another one counts twice, on all ranks alike.
class CountedGloo : public c10d::ProcessGroupGloo, public CountedCollectives {
 public:
  using Tensors = std::vector<at::Tensor>;
  using WorkPointer = c10::intrusive_ptr<c10d::Work>;
  using c10d::ProcessGroupGloo::ProcessGroupGloo;

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
  WorkPointer _allgather_base(at::Tensor& output, at::Tensor& input,
                              const c10d::AllgatherOptions& options) override {
    CountOne();
    return ProcessGroupGloo::_allgather_base(output, input, options);
  }
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override {
    CountOne();
    return ProcessGroupGloo::reduce_scatter(outputs, inputs, options);
  }
  WorkPointer _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                                   const c10d::ReduceScatterOptions& options) override {
    CountOne();
    return ProcessGroupGloo::_reduce_scatter_base(output, input, options);
  }
  WorkPointer alltoall_base(at::Tensor& output, at::Tensor& input,
                            std::vector<int64_t>& output_sizes, std::vector<int64_t>& input_sizes,
                            const c10d::AllToAllOptions& options) override {
    CountOne();
    return ProcessGroupGloo::alltoall_base(output, input, output_sizes, input_sizes, options);
  }
  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    CountOne();
    return ProcessGroupGloo::barrier(options);
  }
};

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_COLLECTIVES_COUNTED_GLOO_H_
