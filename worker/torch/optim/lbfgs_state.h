#ifndef DDPRUN_WORKER_TORCH_OPTIM_LBFGS_STATE_H_
#define DDPRUN_WORKER_TORCH_OPTIM_LBFGS_STATE_H_

#include "absl/status/status.h"
#include "worker/torch/optim/optimizer_state.h"

namespace torch::optim {
class LBFGS;
}  // namespace torch::optim

namespace ddprun::worker {

// What an LBFGS keeps, of all of its parameters as one vector, under its first one's number, as in
// Python: "0.func_evals", "0.d", and its history as "0.old_dirs.0", "0.old_dirs.1". LibTorch's own
// save() of it fails before the first step. Nothing but the learning rate before the first step.
OptimizerTensors GetLbfgsState(const torch::optim::LBFGS& optimizer);

// Errors: FAILED_PRECONDITION — it is another optimizer's; nothing was changed.
absl::Status SetLbfgsState(torch::optim::LBFGS& optimizer, const OptimizerTensors& state);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_LBFGS_STATE_H_
