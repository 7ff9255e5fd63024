#ifndef DDPRUN_WORKER_TORCH_OPTIM_LBFGS_STATE_H_
#define DDPRUN_WORKER_TORCH_OPTIM_LBFGS_STATE_H_

#include "absl/status/status.h"
#include "worker/torch/optim/optimizer_state.h"

namespace torch::optim {
class LBFGS;
}  // namespace torch::optim

namespace ddprun::worker {

// The state of an LBFGS, which has one vector for all of its parameters, under the number of the
// first parameter, as in Python: "0.func_evals", "0.d", and the history as "0.old_dirs.0",
// "0.old_dirs.1". Before the first step only the learning rate; LibTorch's own save() fails then.
OptimizerTensors GetLbfgsState(const torch::optim::LBFGS& optimizer);

// Errors: FAILED_PRECONDITION — the state is another optimizer's; nothing was changed.
absl::Status SetLbfgsState(torch::optim::LBFGS& optimizer, const OptimizerTensors& state);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_LBFGS_STATE_H_
