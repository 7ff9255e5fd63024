// Training on uneven inputs: ranks without inputs take part in the collectives of those that have
// some, in the order of Python's _DDPJoinHook.
#include <c10/util/Exception.h>

#include <functional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "worker/torch/ddp/distributed_data_parallel_implementation.h"
#include "worker/torch/errors/exception_status.h"

namespace ddprun {
namespace {

// Begins the sum, or maximum, of a number over all ranks.
c10::intrusive_ptr<c10d::Work> StartReduction(c10d::ProcessGroup& group, torch::Tensor& number,
                                              const c10d::ReduceOp& operation) {
  std::vector<torch::Tensor> tensors = {number};
  c10d::AllreduceOptions options;
  options.reduceOp = operation;
  return group.allreduce(tensors, options);
}

torch::Tensor OneNumber(float value, torch::Device device) {
  return torch::full({1}, value, torch::TensorOptions(torch::kFloat).device(device));
}

}  // namespace

void DdpImplementation::NotifyJoinedRanks() {
  torch::Tensor one = OneNumber(1, device);
  reducer->set_forward_pass_work_handle(StartReduction(*group, one, c10d::ReduceOp::SUM),
                                        join_options.divide_by_initial_world_size);
  if (!join_options.throw_on_early_termination) return;
  torch::Tensor ended = OneNumber(0, device);
  StartReduction(*group, ended, c10d::ReduceOp::SUM)->wait();
  TORCH_CHECK(ended.item<float>() == 0, ended.item<float>(),
              " rank(s) have no inputs left while rank ", group->getRank(),
              " begins another step; give all ranks as many, or join them without "
              "throw_on_early_termination");
}

void DdpImplementation::NotifyWhetherAveraged() const {
  torch::Tensor averaged = OneNumber(synchronize ? 1 : 0, device);
  StartReduction(*group, averaged, c10d::ReduceOp::SUM);
}

int DdpImplementation::AgreeOnSource(bool candidate) const {
  torch::Tensor source = torch::full({1}, candidate ? group->getRank() : -1,
                                     torch::TensorOptions(torch::kLong).device(device));
  StartReduction(*group, source, c10d::ReduceOp::MAX)->wait();
  return static_cast<int>(source.item<int64_t>());
}

void DdpImplementation::ShadowStep() {
  reducer->rebuild_buckets();
  if (NeedsBuffers()) BroadcastBuffers(AgreeOnSource(false));
  torch::Tensor averaged = OneNumber(0, device);
  StartReduction(*group, averaged, c10d::ReduceOp::SUM)->wait();
  last_forward_synchronized = averaged.item<float>() != 0;
  if (!last_forward_synchronized) return;
  // This rank's gradients are zeros, in the buckets' order.
  std::vector<c10d::GradBucket> buckets = reducer->get_grad_buckets(/*return_zero_tensors=*/true);
  std::vector<c10::intrusive_ptr<c10::ivalue::Future>> results;
  results.reserve(buckets.size());
  for (c10d::GradBucket& bucket : buckets) results.push_back(reducer->run_comm_hook(bucket));
  for (const auto& result : results) result->waitAndThrow();
  if (options.find_unused_parameters) {
    std::vector<torch::Tensor> used = {reducer->get_local_used_map_on_device()};
    group->allreduce(used)->wait();
  }
  reducer->push_rebuilt_params_for_all_indices();
}

void DdpImplementation::ShadowOthers() {
  bool last_with_inputs = true;
  while (true) {
    torch::Tensor still_training = OneNumber(0, device);
    StartReduction(*group, still_training, c10d::ReduceOp::SUM)->wait();
    if (still_training.item<float>() == 0) break;
    if (join_options.throw_on_early_termination) {
      torch::Tensor ended = OneNumber(1, device);
      StartReduction(*group, ended, c10d::ReduceOp::SUM)->wait();
      TORCH_CHECK(false, "rank ", group->getRank(), " has no inputs left while ",
                  still_training.item<float>(),
                  " rank(s) begin another step; give all ranks as many, or join them without "
                  "throw_on_early_termination");
    }
    last_with_inputs = false;
    ShadowStep();
  }
  BroadcastState(AgreeOnSource(last_with_inputs));
}

absl::Status DistributedDataParallel::Join(const std::function<absl::Status()>& train,
                                           const JoinOptions& options) {
  Implementation& ddp = *implementation_;
  if (ddp.joining) {
    return absl::FailedPreconditionError(
        "Join was called inside Join; call it once around all steps");
  }
  ddp.joining = true;
  ddp.join_options = options;
  ddp.logger->set_uneven_input_join();
  if (ddp.check != nullptr) ddp.check->SetActivity("inside Join");
  absl::Status status = worker::CatchExceptions([&]() -> absl::Status {
    DDPRUN_RETURN_IF_ERROR(train());
    const torch::NoGradGuard no_grad;
    ddp.ShadowOthers();
    return absl::OkStatus();
  });
  ddp.joining = false;
  if (ddp.check != nullptr) ddp.check->SetActivity("");
  // The last step's count isn't valid for the steps that follow.
  ddp.reducer->set_forward_pass_work_handle(nullptr, /*useStaticWorldSize=*/true);
  return status;
}

}  // namespace ddprun
