#include "worker/torch/collectives/collectives.h"

#include <c10/core/impl/VirtualGuardImpl.h>

#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun::worker {
namespace {

// LibTorch's own wrapper doesn't forward getError().
c10d::ErrorType ErrorOf(const c10::intrusive_ptr<c10d::Backend>& backend) {
  const auto* wrapper = dynamic_cast<const c10d::ProcessGroupWrapper*>(backend.get());
  return wrapper != nullptr ? wrapper->getWrappedPg()->getError() : backend->getError();
}

}  // namespace

absl::Status AwaitResults(c10d::ProcessGroup& group, torch::Device device) {
  if (device.is_cpu()) return absl::OkStatus();
  return CatchExceptions([&]() -> absl::Status {
    c10::impl::VirtualGuardImpl(device.type()).getStream(device).synchronize();
    if (ErrorOf(group.getBackend(device.type())) == c10d::ErrorType::SUCCESS) {
      return absl::OkStatus();
    }
    return absl::UnavailableError(absl::StrCat(kPeerErrorPrefix, "the workers' group broke while ",
                                               device.str(), " still worked for it"));
  });
}

absl::Status AllReduce(c10d::ProcessGroup& group, torch::Tensor& tensor,
                       const c10d::ReduceOp& operation) {
  return CatchExceptions([&]() -> absl::Status {
    std::vector<torch::Tensor> tensors = {tensor};
    c10d::AllreduceOptions options;
    options.reduceOp = operation;
    group.allreduce(tensors, options)->wait();
    return AwaitResults(group, tensor.device());
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
    return AwaitResults(group, tensor.device());
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
    DDPRUN_RETURN_IF_ERROR(AwaitResults(group, tensor.device()));
    return std::move(outputs[0]);
  });
}

absl::Status Barrier(c10d::ProcessGroup& group, torch::Device device) {
  return CatchExceptions([&]() -> absl::Status {
    c10d::BarrierOptions options;
    if (device.is_cuda()) options.device_ids = {device.index()};
    group.barrier(options)->wait();
    return AwaitResults(group, device);
  });
}

}  // namespace ddprun::worker
