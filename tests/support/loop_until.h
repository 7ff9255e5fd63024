#ifndef DDPRUN_TESTS_SUPPORT_LOOP_UNTIL_H_
#define DDPRUN_TESTS_SUPPORT_LOOP_UNTIL_H_

#include <functional>

#include "absl/time/time.h"
#include "base/event_loop.h"
#include "tests/support/slow.h"

namespace ddprun {

// Handles events of `loop` until `done()`, which is asked after each round of events. Returns false
// when `limit` was over first. Threads: the loop's.
inline bool LoopUntil(EventLoop* loop, const std::function<bool()>& done,
                      absl::Duration limit = absl::Seconds(20) * Slow()) {
  bool late = false;
  Timer timer(loop, [&late] { late = true; });
  timer.Arm(loop->Now() + limit);
  while (!done()) {
    if (late) return false;
    uv_run(loop->uv(), UV_RUN_ONCE);
  }
  return true;
}

}  // namespace ddprun

#endif  // DDPRUN_TESTS_SUPPORT_LOOP_UNTIL_H_
