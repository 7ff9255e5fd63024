#ifndef DDPRUN_LAUNCHER_WARM_MEMORY_H_
#define DDPRUN_LAUNCHER_WARM_MEMORY_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "base/event_loop.h"
#include "base/fd.h"
#include "launcher/os/memory_cgroup.h"

namespace ddprun::launcher {

// Of what we may have (OwnMemory) less than this part is left: it belongs to the training.
inline constexpr uint64_t kFreePartMin = 4;
bool IsShort(const Memory& memory);
// Of OwnMemory; false where it isn't told.
bool MemoryIsShort();

// Tells when processes of this machine stand still for lack of memory, a tenth of the time, and
// ours is short: where it isn't, they are others', at a limit of their own cgroup. The kernel wakes
// us; nothing is looked at meanwhile. Source: Documentation/accounting/psi.rst.
// Threads: the loop's.
class PressureWatch {
 public:
  // Errors: where the kernel tells nobody (before Linux 5.2, psi=0), or not us.
  static absl::StatusOr<std::unique_ptr<PressureWatch>> Create(EventLoop* loop,
                                                               std::function<void()> on_pressure);

 private:
  PressureWatch() = default;
  void OnReady();

  Fd trigger_;
  Fd epoll_;  // readable when the trigger says so, which FdWatch can't ask of it (EPOLLPRI)
  std::function<void()> on_pressure_;
  std::unique_ptr<FdWatch> watch_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_WARM_MEMORY_H_
