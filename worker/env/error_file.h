#ifndef DDPRUN_WORKER_ENV_ERROR_FILE_H_
#define DDPRUN_WORKER_ENV_ERROR_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace ddprun::worker {

// What ended a worker, as launchers show it.
struct WorkerError {
  std::string message;  // "<Type>: <text>"
  std::string stack;    // where it was thrown, innermost frame last; "" = unknown
};

// The text of an error file in torchelastic's schema, which torchrun and ddprun read:
// {"message": {"message": …, "extraInfo": {"py_callstack": …, "timestamp": "<epoch seconds>"}}}.
// Bytes that are not UTF-8 are replaced. Without a stack the message stands in for it, because
// launchers print the call stack.
std::string ErrorFileText(const WorkerError& error, int64_t epoch_seconds);

// Writes the error file, with the wall clock's time, so that no reader sees half of it. The first
// error is the cause: a file that is there already is kept.
// Errors: the errno of open(2), write(2) or link(2), with the path.
absl::Status WriteErrorFile(const std::string& path, const WorkerError& error);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_ENV_ERROR_FILE_H_
