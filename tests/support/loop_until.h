#ifndef DDPRUN_TESTS_SUPPORT_LOOP_UNTIL_H_
#define DDPRUN_TESTS_SUPPORT_LOOP_UNTIL_H_

#include <poll.h>
#include <uv.h>

#include <functional>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "tests/support/slow.h"

namespace ddprun {

// Handles events of `loop` until `done()`, which is asked after each round of events, and may wait
// for something by LoopUntil itself. Returns false when `limit` was over first. Threads: the
// loop's.
inline bool LoopUntil(EventLoop* loop, const std::function<bool()>& done,
                      absl::Duration limit = absl::Seconds(20) * Slow()) {
  bool late = false;
  Timer timer(loop, [&late] { late = true; });
  timer.Arm(loop->Now() + limit);
  while (!done()) {
    if (late) return false;
    // Waits before the round, as programs with a loop of their own do (libuv, uv_backend_fd):
    // libuv 1.44 runs timers before it waits, and what their handlers have made true would be seen
    // when the next one is due.
    uv_update_time(loop->uv());
    pollfd events{.fd = uv_backend_fd(loop->uv()), .events = POLLIN, .revents = 0};
    poll(&events, 1, uv_backend_timeout(loop->uv()));
    uv_run(loop->uv(), UV_RUN_NOWAIT);
  }
  return true;
}

}  // namespace ddprun

#endif  // DDPRUN_TESTS_SUPPORT_LOOP_UNTIL_H_
