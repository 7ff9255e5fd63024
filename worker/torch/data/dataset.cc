#include "ddprun/dataset.h"

#include <torch/utils.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "ddprun/status_error.h"

namespace ddprun {

Dataset TensorDataset(torch::Tensor inputs, torch::Tensor targets) {
  const int64_t size = inputs.size(0);
  if (targets.defined() && targets.size(0) != size) {
    OrThrow(absl::InvalidArgumentError(
        absl::StrCat("a dataset of ", size, " inputs and ", targets.size(0),
                     " targets: give as many, or an undefined tensor where there are no targets")));
  }
  return {.size = size,
          .load = [inputs = std::move(inputs), targets = std::move(targets)](
                      const std::vector<int64_t>& samples, const at::Generator& /*generator*/) {
            const torch::Tensor rows = torch::tensor(samples);
            return Batch{
                .inputs = inputs.index_select(0, rows),
                .targets = targets.defined() ? targets.index_select(0, rows) : torch::Tensor()};
          }};
}

}  // namespace ddprun
