#ifndef DDPRUN_BASE_ERRNO_STATUS_H_
#define DDPRUN_BASE_ERRNO_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace ddprun {

// The status for an errno value: "<what>: <strerror> (errno 13, EACCES)", with the code that
// absl::ErrnoToStatus gives. Threads: any. Params: what — the call and its object: "open '/x'".
absl::Status ErrnoStatus(int error_number, absl::string_view what);

}  // namespace ddprun

#endif  // DDPRUN_BASE_ERRNO_STATUS_H_
