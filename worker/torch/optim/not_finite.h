#ifndef DDPRUN_WORKER_TORCH_OPTIM_NOT_FINITE_H_
#define DDPRUN_WORKER_TORCH_OPTIM_NOT_FINITE_H_

#include <torch/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace ddprun::worker {

// The payload that marks the status of GradientsNotFinite.
inline constexpr const char* kNotFiniteUrl = "ddprun.not_finite";

// The error of clipping when the gradients' norm isn't finite. `name`: the first parameter with a
// gradient that isn't finite; "" = only the norm of all isn't.
inline absl::Status GradientsNotFinite(double norm, const std::string& name) {
  absl::Status status = absl::FailedPreconditionError(absl::StrCat(
      "the norm of the gradients is ", norm,
      name.empty() ? ": together they are beyond the type's range"
                   : absl::StrCat(": the gradient of '", name, "' has a NaN or infinite value"),
      "; lower the learning rate, or scale the loss (GradScaler) in fp16"));
  status.SetPayload(kNotFiniteUrl, absl::Cord(name));
  return status;
}

inline bool IsNotFinite(const absl::Status& status) {
  return status.GetPayload(kNotFiniteUrl).has_value();
}

// Which values a tensor has that aren't finite: with both, kNan.
enum class NotFinite { kNothing, kInfinity, kNan };

// Reads the tensor once, at the speed of memory, on its device. kNothing for integers and 8-bit
// types. Requires: dense, its memory is there. Threads: any.
NotFinite FindNotFinite(const torch::Tensor& tensor);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_NOT_FINITE_H_
