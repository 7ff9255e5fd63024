#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_STATUS_ERROR_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_STATUS_ERROR_H_

#include <exception>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/abseil_release.h"

namespace ddprun {

// The exception by which a Session, and a program over it, reports an error: the status that a part
// of the runtime returned. RunSession and RunWorker write the status into the error file as if it
// had been returned. Everything below a Session returns absl::Status and throws nothing of its own.
class StatusError : public std::exception {
 public:
  // Requires: !status.ok().
  explicit StatusError(absl::Status status);

  const absl::Status& status() const { return status_; }
  // "<CODE>: <message>".
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  absl::Status status_;
  std::string text_;
};

// Throws a StatusError unless the status is OK; for programs over a Session:
//
//   ddprun::OrThrow(ddprun::LoadWeights(*model, "model.safetensors"));
void OrThrow(const absl::Status& status);

template <typename Value>
Value OrThrow(absl::StatusOr<Value> result) {
  OrThrow(result.status());
  return *std::move(result);
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_STATUS_ERROR_H_
