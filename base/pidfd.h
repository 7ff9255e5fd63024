#ifndef DDPRUN_BASE_PIDFD_H_
#define DDPRUN_BASE_PIDFD_H_

#include <sys/types.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/fd.h"

namespace ddprun {

// A process as a descriptor, with O_CLOEXEC. The parameter `whose` names the process in errors:
// "process 17". Errors: pidfd_open(2)'s, with PidfdAdvice() if the kernel or a filter refuses the
// call itself. Threads: any.
absl::StatusOr<Fd> OpenPidfd(pid_t pid, absl::string_view whose);

// Whether the kernel is too old for pidfds, or a seccomp filter refuses them, and what to do.
// Params: release: the kernel's, of uname(2): "5.10.0-32-amd64".
std::string PidfdAdvice(absl::string_view release);
// PidfdAdvice() for the running kernel.
std::string PidfdAdvice();

}  // namespace ddprun

#endif  // DDPRUN_BASE_PIDFD_H_
