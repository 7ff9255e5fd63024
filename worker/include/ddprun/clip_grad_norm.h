#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_CLIP_GRAD_NORM_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_CLIP_GRAD_NORM_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include "absl/status/statusor.h"

namespace ddprun {

// Scales all gradients of `module` by one factor, so that their 2-norm together is at most
// `max_norm` (above 0; infinity only measures). Returns the norm before. Gradients of
// DistributedDataParallel are the same on all ranks, and so is the result.
// Errors: FAILED_PRECONDITION — the norm isn't finite; the text names the first parameter with a
// NaN or infinite gradient. Or a ZeroOptimizer of stage 2 or 3 has the gradients in its shares:
// call its ClipGradNorm. Nothing is changed then. In fp16, where a step overflows now and then,
// call GradScaler's ClipGradNorm, for which an overflow is no error. Threads: one.
// Source: torch.nn.utils.clip_grad_norm_(error_if_nonfinite=True).
absl::StatusOr<double> ClipGradNorm(torch::nn::Module& module, double max_norm);

// OK, or FAILED_PRECONDITION when `loss` (one element) isn't finite: the text names the value and
// the first parameter that isn't finite, if there is one.
absl::Status CheckLoss(const torch::Tensor& loss, torch::nn::Module& module);

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_CLIP_GRAD_NORM_H_
