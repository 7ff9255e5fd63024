#ifndef DDPRUN_WORKER_TORCH_OPTIM_NOT_FINITE_H_
#define DDPRUN_WORKER_TORCH_OPTIM_NOT_FINITE_H_

#include <torch/types.h>

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace ddprun::worker {

// Marks the status below.
inline constexpr const char* kNotFiniteUrl = "ddprun.not_finite";

// What clipping answers when the gradients' norm isn't finite. `name`: of the first parameter whose
// gradient is to blame; "" = none is, alone.
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

// What a tensor has that is no finite number: the worse of both, where it has both.
enum class NotFinite { kNothing, kInfinity, kNan };

// Reads the tensor once, at the speed of memory; of a GPU's the GPU reads it. Integers and the
// types of 8 bits have nothing. Requires: dense, its memory is there. Threads: any.
NotFinite FindNotFinite(const torch::Tensor& tensor);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_OPTIM_NOT_FINITE_H_
