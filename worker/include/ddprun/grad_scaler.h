#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_GRAD_SCALER_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_GRAD_SCALER_H_

#include <torch/types.h>

#include <cstdint>
#include <map>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "ddprun/checkpointed_state.h"

namespace torch::nn {
class Module;
}  // namespace torch::nn
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
// lowers the scale. All ranks of DistributedDataParallel decide alike, because their gradients are;
// with a ZeroOptimizer of stage 2 they agree.
//
//   scaler.Scale(loss).backward();
//   DDPRUN_RETURN_IF_ERROR(scaler.ClipGradNorm(optimizer, *model, 1.0).status());  // if at all
//   DDPRUN_RETURN_IF_ERROR(scaler.Step(optimizer).status());
//   DDPRUN_RETURN_IF_ERROR(scaler.Update());
//
// Several optimizers: Step each, then Update once. Each is unscaled, and left out, for itself; one
// that overflowed lowers the scale.
// Errors of Unscale, ClipGradNorm and Step: FAILED_PRECONDITION — not in the order that each
// method names, where Python raises RuntimeError; an fp16 gradient (the parameters are to be
// float32, see Autocast); or that of ZeroOptimizer::FinishBackward. UNAVAILABLE — a peer is gone.
// Threads: one. Source: Micikevicius et al., Mixed Precision Training (ICLR 2018); numbers and
// order as in torch/amp/grad_scaler.py.
class GradScaler : public CheckpointedState {
 public:
  explicit GradScaler(const GradScalerOptions& options = {});

  // `loss` times the scale.
  torch::Tensor Scale(const torch::Tensor& loss);
  // Divides the optimizer's gradients by the scale: once for each optimizer and Update(), before
  // its Step(); to look at gradients, or to change them.
  absl::Status Unscale(torch::optim::Optimizer& optimizer);
  // Unscales, if that wasn't done, and clips the gradients of `module`, which are this optimizer's,
  // as ddprun::ClipGradNorm, or ZeroOptimizer's, does. Returns the norm before: infinity where it
  // isn't finite. That is what this class is there for: nothing is clipped then, Step() leaves the
  // step out, and Update() lowers the scale.
  // With several optimizers in one module: unscale all of them first.
  absl::StatusOr<double> ClipGradNorm(torch::optim::Optimizer& optimizer, torch::nn::Module& module,
                                      double max_norm);
  // Unscales, if that wasn't done, and steps when all gradients are finite. Returns whether it did.
  // Once for each optimizer and Update().
  absl::StatusOr<bool> Step(torch::optim::Optimizer& optimizer);
  // Sets the scale for the next step. Call it once for each step, after all optimizers' Step().
  // Errors: FAILED_PRECONDITION — there was none since the last one.
  absl::Status Update();

  // What a checkpoint keeps (Checkpointer::Add): the scale, and the steps since it was changed.
  // To restore them is to forget a step that was under way: Unscale and Step begin anew. The state
  // of a scaler that is off changes nothing where it is restored.
  double scale() const { return scale_; }
  int64_t growth_tracker() const { return growth_tracker_; }
  void Restore(double scale, int64_t growth_tracker);
  Tensors SaveState() const override;
  absl::Status RestoreState(const Tensors& state) override;

 private:
  // Of an optimizer, since the last Update().
  enum class Stage { kReady, kUnscaled, kStepped };
  struct OptimizerState {
    Stage stage = Stage::kReady;
    bool overflowed = false;
  };

  absl::Status UnscaleOnce(torch::optim::Optimizer& optimizer, OptimizerState& state) const;
  void SetScale(double scale);

  const GradScalerOptions options_;
  double scale_;
  int64_t growth_tracker_ = 0;
  std::map<const torch::optim::Optimizer*, OptimizerState> states_;
};

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_GRAD_SCALER_H_
