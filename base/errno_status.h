#ifndef DDPRUN_BASE_ERRNO_STATUS_H_
#define DDPRUN_BASE_ERRNO_STATUS_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// The status for an errno value: "<what>: <strerror> (errno 13, EACCES)", with the code that
// absl::ErrnoToStatus gives, and LimitAdvice(). Threads: any. Params: what — the call and its
// object: "open '/x'".
absl::Status ErrnoStatus(int error_number, absl::string_view what);

// Which limit of this process an error stands for, its value, and how to raise it: "; this process
// may have 24 open files (ulimit -n): …". Empty for an errno value that names no limit.
std::string LimitAdvice(int error_number);

}  // namespace ddprun

#endif  // DDPRUN_BASE_ERRNO_STATUS_H_
