#include "ddprun/status_error.h"

namespace ddprun {

StatusError::StatusError(absl::Status status)
    : status_(std::move(status)), text_(status_.ToString()) {}

void OrThrow(const absl::Status& status) {
  if (!status.ok()) throw StatusError(status);
}

}  // namespace ddprun
