#ifndef DDPRUN_LAUNCHER_OS_ERROR_FILE_H_
#define DDPRUN_LAUNCHER_OS_ERROR_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// A worker's report about its own failure.
struct ErrorFile {
  std::string message;    // one or more lines: "ValueError: bad batch"
  std::string traceback;  // the worker's stack; "" = none was written
  int64_t timestamp = 0;  // seconds since 1970 on the worker's clock; 0 = unknown
};

// Reads a torchelastic error file, in the form of torch.distributed.elastic's @record
// {"message": {"message", "extraInfo": {"py_callstack", "timestamp"}}} or in the plain form
// {"message", "timestamp"}. A worker's file is never trusted: if it isn't JSON, is too long or has
// another form, the message says so, followed by the file's first text.
//
// Errors: NOT_FOUND — there is no such file, or it is empty: the worker wrote none. Any other errno
// of open(2) or read(2), with the path. Bound: reads 1 MiB at most. Threads: any.
absl::StatusOr<ErrorFile> ReadErrorFile(const std::string& path);

// Parses the file's bytes; `path` is for messages about invalid files. Accepts any bytes. Threads:
// any.
ErrorFile ParseErrorFile(const std::string& path, absl::string_view bytes);

// The launcher's own error file (its TORCHELASTIC_ERROR_FILE), as torchrun leaves it.

// A worker's file with message.errorCode added, for the program that runs the launcher; the plain
// form is returned unchanged. nullopt = not an error file. `error_code`: exit code or -signal.
std::optional<std::string> WithErrorCode(absl::string_view bytes, int error_code);

// An error in the form of @record. `timestamp`: seconds since 1970.
std::string FormatErrorFile(const ErrorFile& error);

// The bytes of a worker's error file, at most 1 MiB. Errors: as ReadErrorFile.
absl::StatusOr<std::string> ReadErrorFileBytes(const std::string& path);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_ERROR_FILE_H_
