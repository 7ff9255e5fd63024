#ifndef DDPRUN_WORKER_TORCH_ERRORS_EXCEPTION_STATUS_H_
#define DDPRUN_WORKER_TORCH_ERRORS_EXCEPTION_STATUS_H_

#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/env/worker_environment.h"

namespace ddprun::worker {

// The prefix of every error that another worker, or the connection to it, caused: a collective that
// broke because a peer died, a peer that never came. The launcher ranks these errors below real
// causes.
inline constexpr const char* kPeerErrorPrefix = "PeerError: ";

// Thrown by our own backends if another worker, or the connection to it, made a collective fail.
class PeerFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// True when an exception of this (demangled) type and text is a peer's fault.
bool IsPeerError(absl::string_view type, absl::string_view text);

// Converts the exception that is being handled to a status: "[PeerError: ]<type>: <text>" with
// UNAVAILABLE for a peer's fault and INTERNAL otherwise; for a StatusError, its own status. The
// status keeps the stack that LibTorch recorded, for ToWorkerError. Requires: called inside a catch
// clause.
absl::Status StatusFromCurrentException();

// Converts a status to an exception, for library code that needs one. StatusFromCurrentException
// converts it back to a status of the same code.
std::exception_ptr ToException(const absl::Status& status);

// Runs `function`, which returns absl::Status or a StatusOr, and converts exceptions to a status.
template <typename Function>
auto CatchExceptions(Function&& function) -> decltype(std::forward<Function>(function)()) {
  try {
    return std::forward<Function>(function)();
  } catch (...) {
    return StatusFromCurrentException();
  }
}

// Makes the error file's contents for a status: the exception that it came from, if any, else
// "<CODE>: <message>".
WorkerError ToWorkerError(const absl::Status& status);

// The error of a backward pass in which a parameter that is averaged got no gradient.
// Params: name: the first such parameter. others: how many more there are.
inline absl::Status UnusedParameters(const std::string& name, size_t others) {
  return absl::FailedPreconditionError(absl::StrCat(
      "parameter '", name, "'", others > 0 ? absl::StrCat(" and ", others, " more") : "",
      " got no gradient in the backward pass; if the loss doesn't always use it, set "
      "find_unused_parameters, else set its requires_grad to false"));
}

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ERRORS_EXCEPTION_STATUS_H_
