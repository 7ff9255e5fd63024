#ifndef DDPRUN_LAUNCHER_OS_ERROR_FILE_H_
#define DDPRUN_LAUNCHER_OS_ERROR_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace ddprun::launcher {

// What a worker left behind about its own failure.
struct ErrorFile {
  std::string message;    // one or more lines: "ValueError: bad batch"
  std::string traceback;  // the worker's stack; "" = none was written
  int64_t timestamp = 0;  // seconds since 1970 on the worker's clock; 0 = unknown
};

// Reads a torchelastic error file (torchrun-contract 4.5), in the form of @record
// {"message": {"message", "extraInfo": {"py_callstack", "timestamp"}}} or in the plain form
// {"message", "timestamp"}. What a worker writes is never trusted: a file that is no JSON, too long
// or of another shape gives a message that says so, followed by its first text.
//
// Errors: NOT_FOUND — there is no such file, or it is empty: the worker wrote none. Any other errno
// of open(2) or read(2), with the path. Bound: reads 1 MiB at most. Threads: any.
absl::StatusOr<ErrorFile> ReadErrorFile(const std::string& path);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_ERROR_FILE_H_
