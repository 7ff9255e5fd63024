#include "base/thread.h"

#include <cstddef>
#include <latch>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace ddprun {

absl::StatusOr<std::thread> StartThread(const char* what, std::function<void()> body) {
  try {
    return std::thread(std::move(body));
  } catch (const std::system_error& error) {
    // Limits answer EAGAIN. EPERM comes from a filter that refuses clone3(2), as older container
    // runtimes have it.
    const bool filtered = error.code() == std::errc::operation_not_permitted;
    return absl::ResourceExhaustedError(absl::StrCat(
        "there can be no further thread, for ", what, ": ", error.what(),
        filtered ? " (a seccomp filter refuses clone3(2): update the container's runtime, or start "
                   "the container with --security-opt seccomp=unconfined)"
                 : " (limits: ulimit -u, the cgroup's pids.max, memory)"));
  }
}

absl::Status CheckThreads(int count) {
  std::latch checked(1);
  std::vector<std::thread> threads;
  absl::Status status;
  while (status.ok() && threads.size() < static_cast<size_t>(count)) {
    absl::StatusOr<std::thread> thread =
        StartThread("what speaks to other processes", [&checked] { checked.wait(); });
    status = thread.status();
    if (thread.ok()) threads.push_back(*std::move(thread));
  }
  checked.count_down();
  for (std::thread& thread : threads) thread.join();
  return status;
}

}  // namespace ddprun
