#ifndef DDPRUN_LAUNCHER_WARM_MEMORY_H_
#define DDPRUN_LAUNCHER_WARM_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "launcher/os/cgroup.h"

namespace ddprun::launcher {

// Memory is short when less than one part in kFreePartMin is free; the rest belongs to the
// training.
inline constexpr uint64_t kFreePartMin = 4;
bool IsShort(const Memory& memory);
// IsShort(OwnMemory()); false if that isn't known.
bool MemoryIsShort();

// Calls back when processes of this machine stall for lack of memory for a tenth of the time, and
// our own memory is short. If ours isn't, the stalled processes are at a limit of another cgroup.
// The kernel wakes us (PSI trigger), so nothing is polled. Source:
// Documentation/accounting/psi.rst.
// Threads: the loop's.
class PressureWatch {
 public:
  // Errors: the kernel has no PSI (before Linux 5.2, psi=0), or refuses us a trigger.
  static absl::StatusOr<std::unique_ptr<PressureWatch>> Create(EventLoop* loop,
                                                               std::function<void()> on_pressure);

 private:
  PressureWatch() = default;
  void OnReady();

  Fd trigger_;
  Fd epoll_;  // readable on the trigger's EPOLLPRI, which FdWatch can't wait for
  std::function<void()> on_pressure_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_MEMORY_H_
