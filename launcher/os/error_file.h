#ifndef DDPRUN_LAUNCHER_OS_ERROR_FILE_H_
#define DDPRUN_LAUNCHER_OS_ERROR_FILE_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::launcher {

// What a worker left behind about its own failure.
struct ErrorFile {
  std::string message;    // one or more lines: "ValueError: bad batch"
  std::string traceback;  // the worker's stack; "" = none was written
  int64_t timestamp = 0;  // seconds since 1970 on the worker's clock; 0 = unknown
};

// Reads a torchelastic error file, in the form of torch.distributed.elastic's @record
// {"message": {"message", "extraInfo": {"py_callstack", "timestamp"}}} or in the plain form
// {"message", "timestamp"}. What a worker writes is never trusted: a file that is no JSON, too long
// or of another shape gives a message that says so, followed by its first text.
//
// Errors: NOT_FOUND — there is no such file, or it is empty: the worker wrote none. Any other errno
// of open(2) or read(2), with the path. Bound: reads 1 MiB at most. Threads: any.
absl::StatusOr<ErrorFile> ReadErrorFile(const std::string& path);

// The same of the file's bytes; `path` is for the text about what can't be understood. Any bytes
// give an answer. Threads: any.
ErrorFile ParseErrorFile(const std::string& path, absl::string_view bytes);

// The launcher's own error file (its TORCHELASTIC_ERROR_FILE), as torchrun leaves it.

// A worker's file with message.errorCode, for whoever runs the launcher; the plain form comes back
// as it is. nullopt = the bytes are no error file. `error_code`: exit code or -signal.
std::optional<std::string> WithErrorCode(absl::string_view bytes, int error_code);

// An error in the form of @record. `timestamp`: seconds since 1970.
std::string FormatErrorFile(const ErrorFile& error);

// Reads a worker's error file as it is, at most 1 MiB of it. Errors: as ReadErrorFile.
absl::StatusOr<std::string> ReadErrorFileBytes(const std::string& path);

// Writes a file whole or not at all: beside it, then renamed (rename(2)).
// Errors: of open(2), write(2), rename(2), with the path. Blocks. Threads: any.
absl::Status WriteFileAtomically(const std::string& path, absl::string_view bytes);

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_ERROR_FILE_H_
