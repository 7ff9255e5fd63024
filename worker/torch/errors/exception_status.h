#ifndef DDPRUN_WORKER_TORCH_ERRORS_EXCEPTION_STATUS_H_
#define DDPRUN_WORKER_TORCH_ERRORS_EXCEPTION_STATUS_H_

#include <exception>
#include <stdexcept>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "worker/env/error_file.h"

namespace ddprun::worker {

// Starts the message of every error that another worker, or the way to it, caused: a collective
// that broke because a peer died, a peer that never came. The launcher ranks these below real
// causes (design R12).
inline constexpr const char* kPeerErrorPrefix = "PeerError: ";

// What our own backends throw when another worker, or the way to it, made a collective fail.
class PeerFailure : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// True when an exception of this (demangled) type and text is a peer's fault.
bool IsPeerError(absl::string_view type, absl::string_view text);

// The exception that is being handled as a status: "[PeerError: ]<type>: <text>" with UNAVAILABLE
// for a peer's fault and INTERNAL otherwise. Where it was thrown, as far as LibTorch recorded it,
// is kept in the status and comes out by ToWorkerError. Of a StatusError: its own status.
// Requires: called inside a catch clause.
absl::Status StatusFromCurrentException();

// An exception for library code that wants one; caught again it becomes a status of the same kind.
std::exception_ptr ToException(const absl::Status& status);

// Runs `function`, which returns absl::Status or a StatusOr; what it throws becomes the status.
template <typename Function>
auto CatchExceptions(Function&& function) -> decltype(std::forward<Function>(function)()) {
  try {
    return std::forward<Function>(function)();
  } catch (...) {
    return StatusFromCurrentException();
  }
}

// What the error file says about a status: the exception it came from, else "<CODE>: <message>".
WorkerError ToWorkerError(const absl::Status& status);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_ERRORS_EXCEPTION_STATUS_H_
