#ifndef DDPRUN_WORKER_TORCH_OPTIM_OPTIMIZER_STATE_H_
#define DDPRUN_WORKER_TORCH_OPTIM_OPTIMIZER_STATE_H_

#include <torch/optim/optimizer.h>
#include <torch/types.h>

#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace ddprun::worker {

// An optimizer's state by name: "<parameter number>.<field>" with the field names of Python's
// optimizer.state_dict(), and "group.<number>.learning_rate". Parameters are numbered over all
// groups, in order. LibTorch's own serialization names them by address, which means nothing to
// another process.
using OptimizerTensors = std::map<std::string, torch::Tensor>;

// The fields of a parameter's state, in one order everywhere.
struct OptimizerFields {
  std::vector<std::string> tensors;  // in the parameter's shape
  std::vector<std::string> counts;
};

// Errors: UNIMPLEMENTED — the class has no fields of these names; the text names it.
absl::StatusOr<OptimizerFields> GetOptimizerFields(const torch::optim::Optimizer& optimizer);

// The state of Adam, AdamW, SGD, RMSprop and Adagrad by these names, of LBFGS as SetLbfgsState()
// takes it, of an OptimizerSet with each part's name as a prefix. Of any other class what its
// save() writes: "archive", U8 [bytes] (optimizer_archive.h). Errors: UNIMPLEMENTED — the class has
// no save(); the text names it, and what to write.
absl::StatusOr<OptimizerTensors> GetOptimizerState(const torch::optim::Optimizer& optimizer);

// FAILED_PRECONDITION: a tensor of a state, by its name, doesn't have its parameter's shape. This
// happens when groups have changed since the save, because parameters are numbered over all groups.
absl::Status NotItsParameters(const std::string& name, at::IntArrayRef stored,
                              at::IntArrayRef parameter);

// Errors: UNIMPLEMENTED as above. FAILED_PRECONDITION — the state is of another optimizer, or of
// other parameters; the text names what doesn't fit, and the optimizer is then unchanged.
absl::Status SetOptimizerState(torch::optim::Optimizer& optimizer, const OptimizerTensors& state);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_OPTIMIZER_STATE_H_
