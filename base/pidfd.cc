#include "base/pidfd.h"

#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/errno_status.h"

namespace ddprun {
namespace {

// pidfd_open(2) is of Linux 5.3, waitid(2) with P_PIDFD of 5.4.
constexpr std::pair<uint32_t, uint32_t> kFirstWithPidfds = {5, 4};

}  // namespace

absl::StatusOr<Fd> OpenPidfd(pid_t pid, absl::string_view whose) {
  Fd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  if (pidfd.valid()) return pidfd;
  const int number = errno;
  const absl::Status error = ErrnoStatus(number, absl::StrCat("pidfd_open of ", whose));
  if (number != ENOSYS && number != EPERM) return error;
  return absl::Status(error.code(), absl::StrCat(error.message(), "; ", PidfdAdvice()));
}

std::string PidfdAdvice(absl::string_view release) {
  const std::vector<absl::string_view> numbers = absl::StrSplit(release, absl::ByAnyChar(".-"));
  std::pair<uint32_t, uint32_t> version;
  if (numbers.size() > 1 && absl::SimpleAtoi(numbers[0], &version.first) &&
      absl::SimpleAtoi(numbers[1], &version.second) && version < kFirstWithPidfds) {
    return absl::StrCat("pidfds need Linux 5.4 or newer, and this is Linux ", release);
  }
  return absl::StrCat(
      "Linux ", release,
      " has that call, so a seccomp filter refuses it, as older container runtimes do: update the "
      "runtime, or start the container with --security-opt seccomp=unconfined");
}

std::string PidfdAdvice() {
  utsname system{};
  uname(&system);
  return PidfdAdvice(system.release);
}

}  // namespace ddprun
