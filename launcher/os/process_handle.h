#ifndef DDPRUN_LAUNCHER_OS_PROCESS_HANDLE_H_
#define DDPRUN_LAUNCHER_OS_PROCESS_HANDLE_H_

#include <sys/types.h>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fd.h"

namespace ddprun::launcher {

// One process, held by a pidfd (pidfd_open(2)), so that a signal never reaches another process that
// got the pid later. The descriptor becomes readable when the process ends. Move-only; threads:
// any.
class ProcessHandle {
 public:
  ProcessHandle() = default;
  // Errors: NOT_FOUND — there is no such process.
  static absl::StatusOr<ProcessHandle> Open(pid_t pid);

  // Errors: NOT_FOUND — it has ended; PERMISSION_DENIED. Requires: valid().
  absl::Status Signal(int signal_number) const;

  bool valid() const { return pidfd_.valid(); }
  pid_t pid() const { return pid_; }
  int fd() const { return pidfd_.get(); }

 private:
  pid_t pid_ = 0;
  Fd pidfd_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_OS_PROCESS_HANDLE_H_
