#include "base/thread.h"

#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"

namespace ddprun {

absl::StatusOr<std::thread> StartThread(const char* what, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat("there can be no further thread, for ", what, ": ", error.what(),
                     " (limits: ulimit -u, the cgroup's pids.max, memory)"));
  }
}

}  // namespace ddprun
