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

// Loss scaling for fp16, in which small gradients would be rounded to zero: the loss is multiplied
// by a scale, the gradients are divided by the scale, and a step with overflowed gradients is left
// out and lowers the scale. All ranks decide alike: with DistributedDataParallel their gradients
// are the same, and with a ZeroOptimizer of stage 2 or 3 they agree by a collective.
//
//   scaler.Scale(loss).backward();
//   DDPRUN_RETURN_IF_ERROR(scaler.ClipGradNorm(optimizer, *model, 1.0).status());  // if at all
//   DDPRUN_RETURN_IF_ERROR(scaler.Step(optimizer).status());
//   DDPRUN_RETURN_IF_ERROR(scaler.Update());
//
// With several optimizers Step each, then Update once. An overflow leaves out that optimizer's step
// only, and lowers the scale.
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
  // Divides the optimizer's gradients by the scale, for code that looks at gradients or changes
  // them. Once for each optimizer and Update(), before the optimizer's Step().
  absl::Status Unscale(torch::optim::Optimizer& optimizer);
  // Unscales, if that wasn't done, and clips the gradients of `module`, which are this optimizer's,
  // as ddprun::ClipGradNorm or ZeroOptimizer::ClipGradNorm do. Returns the norm before. If the norm
  // isn't finite, returns infinity and clips nothing: Step() will leave the step out, and Update()
  // lower the scale.
  // With several optimizers in one module: unscale all of them first.
  absl::StatusOr<double> ClipGradNorm(torch::optim::Optimizer& optimizer, torch::nn::Module& module,
                                      double max_norm);
  // Unscales, if that wasn't done, and steps if all gradients are finite. Returns whether it
  // stepped. Once for each optimizer and Update().
  absl::StatusOr<bool> Step(torch::optim::Optimizer& optimizer);
  // Sets the scale for the next step. Call it once for each step, after all optimizers' Step().
  // Errors: FAILED_PRECONDITION — there was no Step() since the last Update().
  absl::Status Update();

  // The state that a checkpoint keeps (Checkpointer::Add): the scale, and the steps since the scale
  // was changed. Restoring gives up a step that was under way: Unscale and Step begin anew. The
  // state of a scaler that isn't enabled changes nothing when it is restored.
  double scale() const { return scale_; }
  int64_t growth_tracker() const { return growth_tracker_; }
  void Restore(double scale, int64_t growth_tracker);
  Tensors SaveState() const override;
  absl::Status RestoreState(const Tensors& state) override;

 private:
  // What was done to an optimizer since the last Update().
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
