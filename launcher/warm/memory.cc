#include "launcher/warm/memory.h"

#include <fcntl.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <cerrno>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/errno_status.h"

namespace ddprun::launcher {
namespace {

constexpr char kPressureFile[] = "/proc/pressure/memory";
// Some process stalled for 200 ms of 2 s. Without root a window must be a multiple of 2 s.
constexpr char kTrigger[] = "some 200000 2000000";

}  // namespace

bool IsShort(const Memory& memory) { return memory.available < memory.total / kFreePartMin; }

bool MemoryIsShort() {
  const std::optional<Memory> memory = OwnMemory();
  return memory.has_value() && IsShort(*memory);
}

absl::StatusOr<std::unique_ptr<PressureWatch>> PressureWatch::Create(
    EventLoop* loop, std::function<void()> on_pressure) {
  std::unique_ptr<PressureWatch> watch(new PressureWatch);
  watch->trigger_ = Fd(open(kPressureFile, O_RDWR | O_NONBLOCK | O_CLOEXEC));
  if (!watch->trigger_.valid()) return ErrnoStatus(errno, absl::StrCat("open ", kPressureFile));
  // With its NUL, as the kernel's own example has it.
  if (write(watch->trigger_.get(), kTrigger, sizeof(kTrigger)) < 0) {
    return ErrnoStatus(errno, absl::StrCat("write to ", kPressureFile));
  }
  watch->epoll_ = Fd(epoll_create1(EPOLL_CLOEXEC));
  epoll_event event{};
  event.events = EPOLLPRI;
  if (!watch->epoll_.valid() ||
      epoll_ctl(watch->epoll_.get(), EPOLL_CTL_ADD, watch->trigger_.get(), &event) != 0) {
    return ErrnoStatus(errno, "epoll");
  }
  watch->on_pressure_ = std::move(on_pressure);
  watch->watch_ =
      std::make_unique<FdWatch>(loop, watch->epoll_.get(), [raw = watch.get()] { raw->OnReady(); });
  return watch;
}

void PressureWatch::OnReady() {
  epoll_event event{};
  epoll_wait(epoll_.get(), &event, 1, 0);  // consumes the event
  if (MemoryIsShort()) on_pressure_();
}

}  // namespace ddprun::launcher
