#ifndef DDPRUN_WORKER_TORCH_OPTIM_OPTIMIZER_ARCHIVE_H_
#define DDPRUN_WORKER_TORCH_OPTIM_OPTIMIZER_ARCHIVE_H_

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
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

// The state of an optimizer of a class that isn't known here: what its save() writes, as the bytes
// of a file of torch.jit.load's, [n] uint8.
//
// torch::optim::serialize, which such a class calls, names the state of a parameter by the address
// of the parameter. In the file it is named by the parameter's number in the order of the groups,
// and entries are sorted. So equal states have equal bytes in each run, and Python finds a state's
// parameter:
//
//   written by save():   state.94204816.average   param_groups.0.params.0 = "94204816"
//   in the file:         state.0.average          param_groups.0.params.0 = "0"
//
// Its load() takes either.
//
// Errors: UNIMPLEMENTED — its save() throws or writes nothing; the text says what to write.
absl::StatusOr<torch::Tensor> SaveToArchive(const torch::optim::Optimizer& optimizer);

// Errors: FAILED_PRECONDITION — its load() throws.
absl::Status LoadFromArchive(const torch::Tensor& bytes, torch::optim::Optimizer& optimizer);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_OPTIMIZER_ARCHIVE_H_
