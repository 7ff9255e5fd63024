#include "launcher/os/process_handle.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/pidfd.h"
#include "base/signal_name.h"
#include "base/status_macros.h"

namespace ddprun::launcher {
absl::StatusOr<ProcessHandle> ProcessHandle::Open(pid_t pid) {
  ProcessHandle handle;
  handle.pid_ = pid;
  DDPRUN_ASSIGN_OR_RETURN(handle.pidfd_, OpenPidfd(pid, absl::StrCat("process ", pid)));
  return handle;
}

absl::Status ProcessHandle::Signal(int signal_number) const {
  if (syscall(SYS_pidfd_send_signal, pidfd_.get(), signal_number, nullptr, 0) == 0) {
    return absl::OkStatus();
  }
  return ErrnoStatus(errno, absl::StrCat(SignalName(signal_number), " to process ", pid_));
}

}  // namespace ddprun::launcher
