#ifndef DDPRUN_WORKER_TORCH_ERRORS_UNUSED_PARAMETERS_H_
#define DDPRUN_WORKER_TORCH_ERRORS_UNUSED_PARAMETERS_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace ddprun::worker {

// The error of a backward pass in which a parameter that is averaged got no gradient.
// Params: name: the first such parameter. others: how many more there are.
inline absl::Status UnusedParameters(const std::string& name, size_t others) {
  return absl::FailedPreconditionError(absl::StrCat(
      "parameter '", name, "'", others > 0 ? absl::StrCat(" and ", others, " more") : "",
      " got no gradient in the backward pass; if the loss doesn't always use it, set "
      "find_unused_parameters, else set its requires_grad to false"));
}

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ERRORS_UNUSED_PARAMETERS_H_
