#include "worker/torch/collectives/checked_group.h"

#include <ATen/core/Tensor.h>
#include <torch/csrc/distributed/c10d/debug.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <utility>
#include <vector>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupWrapper.hpp>
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "worker/torch/collectives/single_tensor_collectives.h"
#include "worker/torch/errors/exception_status.h"
#include "worker/torch/store/gathering_store.h"

namespace ddprun::worker {
namespace {

using Tensors = std::vector<at::Tensor>;

// "float [64, 64], long [1]".
std::string Describe(const Tensors& tensors) {
  std::string text;
  for (const at::Tensor& tensor : tensors) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", c10::str(tensor.scalar_type()), " ",
                    c10::str(tensor.sizes()));
  }
  return text;
}

// Compares each collective before it passes it on. Like Python's ProcessGroupWrapper, but over the
// store, so that it also finds ranks that come to no collective at all.
class CheckedBackend : public SingleTensorCollectives<c10d::Backend> {
 public:
  CheckedBackend(c10::intrusive_ptr<c10d::Backend> backend, std::shared_ptr<CollectiveCheck> check)
      : SingleTensorCollectives(backend->getRank(), backend->getSize()),
        backend_(std::move(backend)),
        check_(std::move(check)) {}

  // c10d::Logger casts a backend with the name "gloo" to ProcessGroupGloo.
  const std::string getBackendName() const override {
    return absl::StrCat("checked ", backend_->getBackendName());
  }
  c10::intrusive_ptr<Options> getBackendOptions() override { return backend_->getBackendOptions(); }
  void setTimeout(std::chrono::milliseconds timeout) override { backend_->setTimeout(timeout); }
  void abort() override { backend_->abort(); }
  c10d::ErrorType getError() override { return backend_->getError(); }
  void shutdown() override { backend_->shutdown(); }
  void setSequenceNumberForGroup() override { backend_->setSequenceNumberForGroup(); }
  uint64_t getSequenceNumberForGroup() override { return backend_->getSequenceNumberForGroup(); }
  bool supportsCoalescing() const override { return backend_->supportsCoalescing(); }
  void startCoalescing() override { backend_->startCoalescing(); }
  WorkPointer endCoalescing() override { return backend_->endCoalescing(); }

  WorkPointer broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override {
    Check(absl::StrCat("broadcast from rank ", options.rootRank), tensors);
    return backend_->broadcast(tensors, options);
  }
  WorkPointer allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override {
    Check("all-reduce", tensors);
    return backend_->allreduce(tensors, options);
  }
  WorkPointer allreduce_coalesced(Tensors& tensors,
                                  const c10d::AllreduceCoalescedOptions& options) override {
    Check("all-reduce", tensors);
    return backend_->allreduce_coalesced(tensors, options);
  }
  WorkPointer reduce(Tensors& tensors, const c10d::ReduceOptions& options) override {
    Check(absl::StrCat("reduce to rank ", options.rootRank), tensors);
    return backend_->reduce(tensors, options);
  }
  WorkPointer allgather(std::vector<Tensors>& outputs, Tensors& inputs,
                        const c10d::AllgatherOptions& options) override {
    Check("all-gather", inputs);
    return backend_->allgather(outputs, inputs, options);
  }
  WorkPointer gather(std::vector<Tensors>& outputs, Tensors& inputs,
                     const c10d::GatherOptions& options) override {
    Check(absl::StrCat("gather to rank ", options.rootRank), inputs);
    return backend_->gather(outputs, inputs, options);
  }
  WorkPointer scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                      const c10d::ScatterOptions& options) override {
    Check(absl::StrCat("scatter from rank ", options.rootRank), outputs);
    return backend_->scatter(outputs, inputs, options);
  }
  WorkPointer reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                             const c10d::ReduceScatterOptions& options) override {
    Check("reduce-scatter", outputs);
    return backend_->reduce_scatter(outputs, inputs, options);
  }
  WorkPointer alltoall(Tensors& outputs, Tensors& inputs,
                       const c10d::AllToAllOptions& options) override {
    Check("all-to-all", {});
    return backend_->alltoall(outputs, inputs, options);
  }
  WorkPointer barrier(const c10d::BarrierOptions& options) override {
    Check("barrier", {});
    return backend_->barrier(options);
  }
  // Between two ranks: nothing for all to compare.
  WorkPointer send(Tensors& tensors, int rank, int tag) override {
    return backend_->send(tensors, rank, tag);
  }
  WorkPointer recv(Tensors& tensors, int rank, int tag) override {
    return backend_->recv(tensors, rank, tag);
  }

 protected:
  WorkPointer DoAllGatherTensor(at::Tensor& output, at::Tensor& input,
                                const c10d::AllgatherOptions& options) override {
    Check("all-gather", {input});
    return AllGatherTensor(*backend_, output, input, options);
  }
  WorkPointer DoAllGatherTensors(Tensors& outputs, Tensors& inputs,
                                 const c10d::AllgatherOptions& options) override {
    Check("all-gather", inputs);
    return AllGatherTensors(*backend_, outputs, inputs, options);
  }
  WorkPointer DoReduceScatterTensor(at::Tensor& output, at::Tensor& input,
                                    const c10d::ReduceScatterOptions& options) override {
    Check("reduce-scatter", {output});
    return ReduceScatterTensor(*backend_, output, input, options);
  }
  WorkPointer DoReduceScatterTensors(Tensors& outputs, Tensors& inputs,
                                     const c10d::ReduceScatterOptions& options) override {
    Check("reduce-scatter", outputs);
    return ReduceScatterTensors(*backend_, outputs, inputs, options);
  }
  WorkPointer DoAllToAllTensor(at::Tensor& output, at::Tensor& input, Sizes& output_sizes,
                               Sizes& input_sizes, const c10d::AllToAllOptions& options) override {
    Check("all-to-all", {});
    return AllToAllTensor(*backend_, output, input, output_sizes, input_sizes, options);
  }

 private:
  void Check(const std::string& operation, const Tensors& tensors) {
    const absl::Status status = check_->Compare(
        tensors.empty() ? operation : absl::StrCat(operation, " of ", Describe(tensors)));
    if (!status.ok()) std::rethrow_exception(ToException(status));
  }

  const c10::intrusive_ptr<c10d::Backend> backend_;
  const std::shared_ptr<CollectiveCheck> check_;
};

}  // namespace

c10::intrusive_ptr<c10d::ProcessGroup> CheckedGroup(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group,
    const std::shared_ptr<CollectiveCheck>& check) {
  auto checked = c10::make_intrusive<c10d::ProcessGroup>(store, group->getRank(), group->getSize());
  checked->setDefaultBackend(group->getBackendType());
  for (const c10::Device& device : group->getDeviceTypes()) {
    checked->setBackend(
        device.type(), group->getBackendType(),
        c10::make_intrusive<CheckedBackend>(group->getBackend(device.type()), check));
  }
  return checked;
}

namespace {

// c10d::Logger casts a backend with the name "gloo" to ProcessGroupGloo, and LibTorch's wrapper has
// the name of the backend that it wraps.
class DebugBackend : public c10d::ProcessGroupWrapper {
 public:
  using ProcessGroupWrapper::ProcessGroupWrapper;
  const std::string getBackendName() const override {
    return absl::StrCat("checked ", ProcessGroupWrapper::getBackendName());
  }
};

}  // namespace

absl::StatusOr<c10::intrusive_ptr<c10d::ProcessGroup>> DebugGroup(
    const c10::intrusive_ptr<c10d::Store>& store,
    const c10::intrusive_ptr<c10d::ProcessGroup>& group, const ProcessGroupPlan& plan) {
  c10d::setDebugLevelFromEnvironment();
  if (c10d::debug_level() != c10d::DebugLevel::Detail) return group;
  ProcessGroupPlan comparing = plan;
  comparing.backend = BackendKind::kGloo;
  DDPRUN_ASSIGN_OR_RETURN(
      const c10::intrusive_ptr<c10d::ProcessGroup> helper,
      CreateProcessGroup(c10::make_intrusive<StorePart>("debug", store), comparing));
  auto wrapped = c10::make_intrusive<c10d::ProcessGroup>(store, group->getRank(), group->getSize());
  wrapped->setDefaultBackend(group->getBackendType());
  for (const c10::Device& device : group->getDeviceTypes()) {
    wrapped->setBackend(device.type(), group->getBackendType(),
                        c10::make_intrusive<DebugBackend>(group->getBackend(device.type()),
                                                          helper->getDefaultBackend()));
  }
  return wrapped;
}

std::string CommunicationVariables() {
  static constexpr std::array<absl::string_view, 6> kPrefixes = {
      "NCCL_",      "TORCH_NCCL_", "GLOO_", "TORCH_DISTRIBUTED_DEBUG=", "TORCH_CPP_LOG_LEVEL=",
      "TORCH_GLOO_"};
  // torchrun and ddprun give the first to every worker; the others are LeaveNcclErrorsAlone()'s.
  static constexpr std::array<absl::string_view, 5> kNobodysChoice = {
      "TORCH_NCCL_ASYNC_ERROR_HANDLING=1", "TORCH_NCCL_ASYNC_ERROR_HANDLING=0",
      "TORCH_NCCL_DUMP_ON_TIMEOUT=0", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC=0",
      "TORCH_NCCL_ENABLE_MONITORING=0"};
  std::vector<std::string> found;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    const absl::string_view text = *variable;
    if (std::count(kNobodysChoice.begin(), kNobodysChoice.end(), text) > 0) continue;
    if (std::any_of(kPrefixes.begin(), kPrefixes.end(),
                    [text](absl::string_view prefix) { return absl::StartsWith(text, prefix); })) {
      found.emplace_back(text);
    }
  }
  std::sort(found.begin(), found.end());
  return absl::StrJoin(found, " ");
}

}  // namespace ddprun::worker
