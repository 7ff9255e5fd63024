#include "launcher/os/process_handle.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"
#include "base/signal_name.h"

namespace ddprun::launcher {
namespace {

absl::Status ProcessError(int error, absl::string_view what) {
  const absl::Status status = ErrnoStatus(error, what);
  return error == ESRCH ? absl::NotFoundError(status.message()) : status;
}

}  // namespace

absl::StatusOr<ProcessHandle> ProcessHandle::Open(pid_t pid) {
  ProcessHandle handle;
  handle.pid_ = pid;
  handle.pidfd_.Reset(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));  // sets O_CLOEXEC
  if (!handle.pidfd_.valid()) {
    return ProcessError(errno, absl::StrCat("pidfd_open of process ", pid));
  }
  return handle;
}

absl::Status ProcessHandle::Signal(int signal_number) const {
  if (syscall(SYS_pidfd_send_signal, pidfd_.get(), signal_number, nullptr, 0) == 0) {
    return absl::OkStatus();
  }
  return ProcessError(errno, absl::StrCat(SignalName(signal_number), " to process ", pid_));
}

}  // namespace ddprun::launcher
