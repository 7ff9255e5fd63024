#include "worker/torch/collectives/collectives.h"

#include <utility>

#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {

absl::Status AllReduce(c10d::ProcessGroup& group, torch::Tensor& tensor,
                       const c10d::ReduceOp& operation) {
  return CatchExceptions([&]() -> absl::Status {
    std::vector<torch::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = operation;
    group.allreduce(tensors, options)->wait();
    return absl::OkStatus();
  });
}

absl::Status AllReduceSum(c10d::ProcessGroup& group, torch::Tensor& tensor) {
  return AllReduce(group, tensor, c10d::ReduceOp::SUM);
}

absl::Status Broadcast(c10d::ProcessGroup& group, torch::Tensor& tensor, uint32_t source) {
  return CatchExceptions([&]() -> absl::Status {
    std::vector<torch::Tensor> tensors = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = source;
    group.broadcast(tensors, options)->wait();
    return absl::OkStatus();
  });
}

absl::StatusOr<std::vector<torch::Tensor>> AllGather(c10d::ProcessGroup& group,
                                                     const torch::Tensor& tensor) {
  return CatchExceptions([&]() -> absl::StatusOr<std::vector<torch::Tensor>> {
    std::vector<torch::Tensor> inputs = {tensor};
    std::vector<std::vector<torch::Tensor>> outputs(1);
    for (int rank = 0; rank < group.getSize(); ++rank) {
      outputs[0].push_back(torch::empty_like(tensor));
    }
    group.allgather(outputs, inputs)->wait();
    return std::move(outputs[0]);
  });
}

absl::Status Barrier(c10d::ProcessGroup& group, torch::Device device) {
  return CatchExceptions([&]() -> absl::Status {
    c10d::BarrierOptions options;
    if (device.is_cuda()) options.device_ids = {device.index()};
    group.barrier(options)->wait();
    return absl::OkStatus();
  });
}

}  // namespace ddprun::worker
