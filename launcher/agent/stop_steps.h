#ifndef DDPRUN_LAUNCHER_AGENT_STOP_STEPS_H_
#define DDPRUN_LAUNCHER_AGENT_STOP_STEPS_H_

#include <cstdint>
#include <functional>
#include <memory>

#include "base/event_loop.h"
#include "launcher/agent/hang_monitor.h"
#include "launcher/core/supervisor/supervisor_events.h"

namespace ddprun::launcher {

// Exchanges stop steps with this node's workers through their pages (docs/PROGRESS.md, R14).
//
// A worker stores its mark and then loads the prepared step; we store that step and then load the
// marks. If both sides loaded before their stores became visible, each would miss the other
// (Dekker's problem). We fence our side; a Python program can't. So marks count as "below" only if
// a second look, kSettle after the first, still finds them there: no store stays in a buffer for so
// long. Threads: the loop's.
class StopSteps {
 public:
  // `monitor` has the pages and outlives this object; `looked` feeds the supervisor.
  StopSteps(EventLoop* loop, HangMonitor* monitor, std::function<void(StopStepLooked)> looked);

  // Before the workers of a generation are spawned.
  void Begin();
  void Do(const LookAtStopStep& request);
  void Do(const CommitStopStep& commit);
  // The largest step at which a worker stopped as committed; 0 = none did.
  uint64_t StoppedAt() const;

 private:
  StopStepLooked Look(const LookAtStopStep& request) const;
  void LookAgain();

  EventLoop* loop_;
  HangMonitor* monitor_;
  std::function<void(StopStepLooked)> looked_;
  LookAtStopStep request_;  // the newest of a round
  uint64_t prepared_ = 0;
  uint64_t committed_ = 0;
  std::unique_ptr<Timer> timer_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_AGENT_STOP_STEPS_H_
