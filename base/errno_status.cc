#include "base/errno_status.h"

#include <sys/resource.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace ddprun {

std::string LimitAdvice(int error_number) {
  rlimit limit{};
  if (error_number == EMFILE && getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    return absl::StrCat(
        "; this process may have ", limit.rlim_cur,
        " open files (ulimit -n): raise that in the shell that starts ddprun, as by "
        "ulimit -n 4096, or where the hard limit is lower (ulimit -Hn) in "
        "/etc/security/limits.conf or by the container's --ulimit nofile=4096");
  }
  // Also what a file system can't hold, where no limit is set.
  if (error_number == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
      limit.rlim_cur != RLIM_INFINITY) {
    return absl::StrCat("; a file of this process may have ", limit.rlim_cur,
                        " bytes (ulimit -f): raise that in the shell that starts ddprun, as by "
                        "ulimit -f unlimited");
  }
  return "";
}

absl::Status ErrnoStatus(int error_number, absl::string_view what) {
  const char* name = strerrorname_np(error_number);
  return {absl::ErrnoToStatusCode(error_number),
          absl::StrCat(what, ": ",
                       strerrordesc_np(error_number) != nullptr ? strerrordesc_np(error_number)
                                                                : "unknown error",
                       " (errno ", error_number, name != nullptr ? ", " : "",
                       name != nullptr ? name : "", ")", LimitAdvice(error_number))};
}

}  // namespace ddprun
