#include "worker/torch/session/epoch_loss.h"

#include "base/status_macros.h"

namespace ddprun::worker {

void EpochLoss::Add(uint64_t epoch, int64_t step, const torch::Tensor& loss, int64_t samples) {
  if (epoch_ != epoch || step <= step_) {
    sum_ = torch::Tensor();
    samples_ = 0;
  }
  epoch_ = epoch;
  step_ = step;
  if (!loss.defined() || samples == 0) return;
  // Not read here, because every step would have to wait for a GPU.
  const torch::Tensor of_step = loss.detach().to(torch::kDouble).reshape({}) * samples;
  sum_ = sum_.defined() ? sum_ + of_step : of_step;
  samples_ += samples;
}

absl::StatusOr<std::optional<EpochLoss::Result>> EpochLoss::Mean(Context& context) const {
  torch::Tensor sums = torch::zeros({2}, torch::kDouble);
  if (sum_.defined()) sums[0] = sum_.cpu();
  sums[1] = samples_;
  sums = sums.to(context.device());
  DDPRUN_RETURN_IF_ERROR(context.AllReduceSum(sums));
  const double samples = sums[1].item<double>();
  if (samples == 0) return std::nullopt;
  return Result{.loss = sums[0].item<double>() / samples, .samples = static_cast<int64_t>(samples)};
}

}  // namespace ddprun::worker
