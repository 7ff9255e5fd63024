#ifndef DDPRUN_WORKER_ENV_ERROR_FILE_H_
#define DDPRUN_WORKER_ENV_ERROR_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace ddprun::worker {

// The error that ended a worker, as launchers show it.
struct WorkerError {
  std::string message;  // "<Type>: <text>"
  std::string stack;    // where it was thrown, innermost frame last; "" = unknown
};

// The text of an error file in torchelastic's schema, which torchrun and ddprun read:
// {"message": {"message": …, "extraInfo": {"py_callstack": …, "timestamp": "<epoch seconds>"}}}.
// Invalid UTF-8 is replaced. Without a stack the message is in its place, because launchers print
// the call stack.
std::string ErrorFileText(const WorkerError& error, int64_t epoch_seconds);

// Writes the error file, with the wall clock's time, so that no reader sees half of it. An existing
// file is kept, because the first error is the cause.
// Errors: the errno of open(2), write(2) or link(2), with the path.
absl::Status WriteErrorFile(const std::string& path, const WorkerError& error);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_ENV_ERROR_FILE_H_
