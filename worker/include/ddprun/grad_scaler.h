#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_GRAD_SCALER_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_GRAD_SCALER_H_

#include <torch/types.h>

#include <cstdint>

#include "absl/status/status.h"
#include "ddprun/checkpointed_state.h"

namespace torch::optim {
class Optimizer;
}  // namespace torch::optim

namespace ddprun {

// The options of torch.amp.GradScaler, with its defaults.
struct GradScalerOptions {
  bool enabled = true;  // false: all methods pass everything through, for bf16 and float32
  double init_scale = 65536;
  double growth_factor = 2;
  double backoff_factor = 0.5;
  int64_t growth_interval = 2000;  // steps without an overflow after which the scale grows
};

// Loss scaling for fp16, whose small gradients would be rounded to zero: the loss is multiplied by
// a scale, the gradients are divided by it, and a step whose gradients overflowed is left out and
// lowers the scale. All ranks of DistributedDataParallel decide alike, since their gradients are;
// with a ZeroOptimizer of stage 2 they agree, and Unscale throws when a peer is gone.
//
//   scaler.Scale(loss).backward();
//   scaler.Unscale(optimizer);              // only to clip in between
//   ClipGradNorm(model->named_parameters(), 1.0);
//   const bool stepped = scaler.Step(optimizer);
//   scaler.Update();
//
// Threads: one. Source: Micikevicius et al., Mixed Precision Training (ICLR 2018); numbers as in
// torch/amp/grad_scaler.py.
class GradScaler : public CheckpointedState {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});

  // `loss` times the scale.
  torch::Tensor Scale(const torch::Tensor& loss);
  // Divides the optimizer's gradients by the scale, once for each Update().
  void Unscale(torch::optim::Optimizer& optimizer);
  // Unscales, if that wasn't done, and steps when all gradients are finite. Returns whether it did.
  bool Step(torch::optim::Optimizer& optimizer);
  // Sets the scale for the next step. Call it once for each step, after Step().
  void Update();

  // What a checkpoint keeps (Checkpointer::Add): the scale, and the steps since it was changed.
  double scale() const { return scale_; }
  int64_t growth_tracker() const { return growth_tracker_; }
  void Restore(double scale, int64_t growth_tracker);
  Tensors SaveState() const override;
  absl::Status RestoreState(const Tensors& state) override;

 private:
  const GradScalerOptions options_;
  double scale_;
  int64_t growth_tracker_ = 0;
  bool unscaled_ = false;
  bool overflowed_ = false;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_GRAD_SCALER_H_
