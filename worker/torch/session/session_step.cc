#include "worker/torch/session/session_step.h"

#include <torch/utils.h>

#include <utility>

#include "base/status_macros.h"
#include "ddprun/parameters.h"

namespace ddprun::worker {

StepStart::StepStart(const TrainedModel& trained, const OwnStates& own, TrainingCourse& course)
    : trained_(trained),
      own_(own),
      course_(course),
      step_(course.step()),
      kept_own_(own.Keep()),
      is_finished_(course.marks().is_finished),
      scale_(trained.scaler().scale()),
      growth_tracker_(trained.scaler().growth_tracker()) {
  const torch::NoGradGuard no_grad;
  for (const torch::Tensor& buffer : Buffers(*trained.module())) buffers_.push_back(buffer.clone());
  if (trained.power_sgd() != nullptr) power_sgd_ = KeepPowerSgd(*trained.power_sgd());
}

absl::Status StepStart::KeepBeforeUpdate(const ReplicatedState& state) {
  if (before_update_.has_value()) return absl::OkStatus();
  const torch::NoGradGuard no_grad;
  DDPRUN_ASSIGN_OR_RETURN(CheckpointTensors tensors, LastingTensors(state));
  AddTensors("", CollectTensors(state.module, course_.progress()), tensors);
  for (auto& [name, tensor] : tensors) tensor = tensor.clone();
  before_update_ = std::move(tensors);
  return absl::OkStatus();
}

absl::Status StepStart::PutBack(const ReplicatedState& state) const {
  if (step_ != course_.step()) return absl::OkStatus();
  const torch::NoGradGuard no_grad;
  // Otherwise parameters change only at the step's end, which waits for no peer.
  if (before_update_.has_value()) {
    DDPRUN_RETURN_IF_ERROR(RestoreLasting(*before_update_, state));
    trained_.scaler().Restore(scale_, growth_tracker_);
  }
  DDPRUN_RETURN_IF_ERROR(own_.PutBack(kept_own_));
  course_.marks().is_finished = is_finished_;
  std::vector<torch::Tensor> buffers = Buffers(*trained_.module());
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].copy_(buffers_[i]);
  return trained_.power_sgd() != nullptr ? trained_.power_sgd()->RestoreState(power_sgd_)
                                         : absl::OkStatus();
}

}  // namespace ddprun::worker
