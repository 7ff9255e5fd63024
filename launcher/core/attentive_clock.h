#ifndef DDPRUN_LAUNCHER_CORE_ATTENTIVE_CLOCK_H_
#define DDPRUN_LAUNCHER_CORE_ATTENTIVE_CLOCK_H_

#include <utility>

#include "absl/time/time.h"
#include "base/instant.h"

namespace ddprun::launcher {

// A stall-compensated clock, for time-outs on other processes. Time in which this process itself
// was held up (stopped, its machine paused or out of memory) and could not see what others did
// doesn't count, as R4 requires for the service's time-outs. Not for deadlines by another clock: a
// job's time limit, a lease in etcd.
//
// The caller arms its timer for Wake(), and calls Read() when it fires. A call that comes much
// later than asked shows that the process was held up. Then the clock stands still just before the
// time that was due, for kHearing, so that messages that came meanwhile are read first. The clock
// is then late by the hold-up and kHearing. A machine that is always late makes the clock slower,
// but doesn't stop it.
//
//   runs ─Read, over kHeldUp after it was asked for─► stands for kHearing ─► runs, later
//
// Pure; one thread.
//
// One clock serves all bounds. If each bound were extended separately, the next one to be written
// would be forgotten: eight parts have bounds. CLOCK_MONOTONIC alone would count the time of a
// SIGSTOP and of a frozen cgroup.
class AttentiveClock {
 public:
  // How long reading the messages that came meanwhile may take, and other processes that stood
  // still with us may take to go on.
  static constexpr absl::Duration kHearing = absl::Seconds(1);
  // The longest time between two calls while a time-out runs. At most this much of a hold-up
  // counts.
  static constexpr absl::Duration kTick = absl::Seconds(1);

  explicit AttentiveClock(Instant now) : real_(now), time_(now) {}

  // The clock's time at `now`. Neither ever goes back. Params: asked: what Wake() returned after
  // the last call, or an earlier time for which the caller armed its timer.
  Instant Read(Instant now, Instant asked);
  // The same, without advancing the clock.
  Instant At(Instant now) const;
  // When, in real time, to call Read() for a time-out at `bound` of this clock; infinite = never.
  Instant Wake(Instant bound) const;
  // How long the hold-up lasted that was found since the last call; zero = there was none.
  absl::Duration TakeStall() { return std::exchange(stall_, absl::ZeroDuration()); }

 private:
  Instant real_;                      // real time of the last call
  Instant time_;                      // the clock's time then; at least real_ - behind_
  absl::Duration behind_;             // how late the clock is; never decreases
  Instant stands_until_ = Instant();  // in real time
  absl::Duration stall_;
};

}  // namespace ddprun::launcher

#endif  // DDPRUN_LAUNCHER_CORE_ATTENTIVE_CLOCK_H_
